from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.breakers import DEFAULTS, BreakersContract, Diary, Fleet, fresh
from tests.contracts.breakers_model import NAME, Reply, Subject, compare_with_rules

from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.breaker_rules import CallBatch


@pytest.fixture
def make_breakers():
    """Start what one process has: its breakers on a line of its own, and its diary."""
    with ExitStack() as stack:

        def make(url, prefix, settings=None, default=DEFAULTS):
            diary = Diary()
            line = FlowLine(url, prefix=prefix)
            stack.callback(line.close)
            return RedisBreakers(line, settings, default, diary), diary

        yield make


class TestRedisBreakers(BreakersContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def make_fleet(self, redis_url, make_breakers):
        def make(settings=None, default=DEFAULTS):
            prefix = fresh()
            here, told_here = make_breakers(redis_url, prefix, settings, default)
            there, told_there = make_breakers(redis_url, prefix, settings, default)
            return Fleet(here, there, [told_here, told_there])

        return make

    def test_random_histories_match_the_rules(self, redis_url):
        line = TimedLine(redis_url)

        def make(settings):
            line.prefix, diary = fresh(), Diary()
            breakers = RedisBreakers(line, default=settings, watch=diary)

            def step(*what):
                state, permitted, wait = breakers._step(NAME, *what)
                return Reply(line.told, state, permitted, timedelta(milliseconds=wait))

            def set_back(span):
                key = breakers._key("breaker", NAME)
                if (stored := line.client.execute("GET", key)) is not None:
                    line.client.execute("SET", key, moved_on(stored, span))

            return Subject(step, diary.changes, lambda: breakers.history(1000), set_back)

        compare_with_rules(make)
        line.client.close()

    def test_a_ramp_up_from_before_the_clock_was_set_back_begins_anew(
        self, redis_url, make_breakers
    ):
        breakers, _ = make_breakers(redis_url, fresh())
        breakers.isolate("crm", by="ann")
        breakers.reset("crm", by="ann")
        client, key = breakers._line.client, breakers._key("breaker", "crm")
        client.execute("SET", key, moved_on(client.execute("GET", key), timedelta(hours=1)))
        report = ("report", 2, *CallBatch().with_call(ok=True))
        state, _, _ = breakers._step("crm", *report)
        assert state.ramp_from < state.changed_at - timedelta(minutes=59)


def moved_on(stored, span):
    """Return a state as it lies in Redis, all its moments *span* later."""
    ms, state = span // timedelta(milliseconds=1), json.loads(stored)
    for one in state["tallies"]:
        one[0] += ms
    for one in state["probes"]:
        one[1] += ms
    for key in ("ramp_from", "retry_at", "ill_since", "changed_at"):
        if key in state:
            state[key] += ms
    return json.dumps(state)


class TimedLine(FlowLine):
    """Keeps the time at which the store judged the last step."""

    def told_time(self, milliseconds):
        self.told = datetime.fromtimestamp(milliseconds / 1000, UTC)
