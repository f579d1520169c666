"""Retry budgets on a real Redis: the contract, a fleet, and what happens without the store."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.adapters.counted import Counted
from tests.contracts.budgets import BudgetsContract, granted
from tests.contracts.idempotency import fresh
from tools.tcp_proxy import unused_port

from angzarr.adapters.memory.limits import InProcessBudgets
from angzarr.adapters.redis import budget
from angzarr.adapters.redis.budget import SPENT_FOR, RedisBudgets
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.budget import BudgetSettings
from hand_clock import HandClock
from polling import wait_until


@pytest.fixture
def prefix():
    return f"angzarr-{fresh()}"


@pytest.fixture
def open_line(redis_url, prefix):
    lines = []

    def open_line(url=redis_url):
        lines.append(FlowLine(url, prefix=prefix))
        return lines[-1]

    yield open_line
    for line in lines:
        line.close()


@pytest.fixture
def make(open_line):
    return lambda settings: RedisBudgets(open_line(), default=settings)


class TestRedisBudgets(BudgetsContract):
    @pytest.fixture
    def make(self, make):
        return make

    @pytest.fixture
    def settled(self):
        return lambda budgets: budgets._tell()

    @pytest.fixture
    def let_pass(self):
        def let_pass(span):
            time.sleep((span + SPENT_FOR).total_seconds() + 0.02)

        return let_pass


STEPS = st.one_of(
    st.tuples(st.just("first"), st.integers(1, 20)),
    st.tuples(st.just("retry"), st.sampled_from([("crm",), ("mail",), ("crm", "mail")])),
    st.tuples(st.just("returned"), st.integers(0, 20)),
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=40),
    share=st.sampled_from([0.0, 0.2, 1 / 3]),
    least=st.integers(1, 4),
)
def test_redis_says_what_the_rules_say(open_line, steps, share, least):
    """Time stands still for the rules and nearly so for Redis: its window is an hour."""
    line, at = open_line(), fresh()
    line.start = lambda: None
    rules = BudgetSettings(share=share, least=least, window=timedelta(hours=1))
    shared, model = RedisBudgets(line, default=rules), InProcessBudgets({}, rules, HandClock())
    taken = []
    for step, what in steps:
        shared._spent.clear()  # it would answer by itself
        if step == "first":
            for _ in range(what):
                shared.first([f"crm{at}"])
                model.first([f"crm{at}"])
        elif step == "retry":
            names, token = [f"{name}{at}" for name in what], fresh()
            said, expected = shared.retry(names, token), model.retry(names, token)
            assert (said is None) == (expected is None)
            if said is None:
                taken.append((names, token))
            else:
                waits = [one.wait.by(1.0).total_seconds() for one in (said, expected)]
                assert waits[0] == pytest.approx(waits[1], abs=5)
        elif taken:
            names, token = taken.pop(what % len(taken))
            shared.returned(names, token)
            model.returned(names, token)


def test_a_first_attempt_costs_no_round_trip_and_a_thousand_refusals_cost_one(open_line):
    line = open_line()
    line.start = lambda: None  # no turns
    budgets = RedisBudgets(line, default=BudgetSettings(share=0, least=1))
    counted = Counted(line.client)
    for _ in range(100):
        budgets.first(["crm"])
    assert counted.calls == 0
    granted(budgets, ["crm"], 1)
    stopped = line.now()
    line.now = lambda: stopped
    granted(budgets, ["crm"], 1000)
    assert counted.calls == 2


def test_what_is_counted_is_told_by_the_turns_of_the_line(open_line, make):
    settings = BudgetSettings(share=1, least=1)
    counting = make(settings)
    for _ in range(10):
        counting.first(["crm"])
    wait_until(lambda: granted(make(settings), ["crm"], 2)[1:], "its first attempts are known")


def test_places_that_a_process_gave_by_itself_are_known_to_the_next(make):
    settings = BudgetSettings(share=0, least=60, window=timedelta(minutes=1))
    one, other = make(settings), make(settings)
    granted(one, ["crm"], 60)
    for n in range(10):
        one.retry(["crm"], f"late {n}")
    one._tell()
    wait = other.retry(["crm"], "later").wait.by(0.0)
    assert wait.total_seconds() == pytest.approx(11, abs=0.5)


def test_a_store_that_is_away_lets_retries_go_on(open_line):
    line = open_line(f"redis://127.0.0.1:{unused_port()}/0")
    budgets = RedisBudgets(line, default=BudgetSettings(share=0, least=1))
    budgets.first(["crm"])
    budgets.returned(["crm"], "t")
    assert len(granted(budgets, ["crm"], 100)) == 100


def test_what_happens_while_the_store_is_away_is_not_told_as_new_when_it_is_back(
    open_line, make_redis
):
    server = make_redis(durable=True)
    line = open_line(server.url)
    budgets = RedisBudgets(line, default=BudgetSettings(share=1, least=1))
    (token,) = granted(budgets, ["crm"], 1)
    server.kill()
    assert granted(budgets, ["crm"], 2), "the store is away, and that is noticed"
    for _ in range(1000):
        budgets.first(["crm"])
        budgets.returned(["crm"], token)
    server.start()
    wait_until(lambda: not line.away, "it is back")
    assert granted(budgets, ["crm"], 5) == []


def test_no_key_outlives_its_use(make, raw, prefix):
    budgets = make(BudgetSettings(share=0, least=1))
    budgets.first(["crm"])
    granted(budgets, ["crm"], 3)
    keys = list(raw.scan_iter(match=f"{{{prefix}:flow}}:*"))
    assert sorted(keys) == sorted(
        f"{{{prefix}:flow}}:{kind}:crm".encode() for kind in budget._KINDS
    )
    assert all(0 < raw.pttl(key) <= 120_000 for key in keys)


SETTINGS = BudgetSettings(share=0.2, least=5)
FIRSTS = 100


def work(url, prefix, go, said):
    """Count first attempts and ask for retries in four threads."""
    line = FlowLine(url, prefix=prefix)
    budgets = RedisBudgets(line, default=SETTINGS)
    taken = []

    def ask(number):
        go.wait()
        for n in range(100):
            if n % 4 == 0:
                budgets.first(["crm"])
            taken.extend(granted(budgets, ["crm"], 1, f"{number}-{n}"))
            time.sleep(0.002)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line.close()
    said.put(json.dumps(taken))


def test_a_fleet_takes_no_more_than_its_first_attempts_allow(redis_url, prefix):
    spawn = multiprocessing.get_context("spawn")
    go, said = spawn.Event(), spawn.Queue()
    fleet = [spawn.Process(target=work, args=(redis_url, prefix, go, said)) for _ in range(2)]
    for process in fleet:
        process.start()
    go.set()
    taken = [json.loads(said.get(timeout=60)) for _ in fleet]
    for process in fleet:
        process.join(60)
    in_all = sum(len(tokens) for tokens in taken)
    firsts = 2 * FIRSTS
    assert SETTINGS.least < in_all <= SETTINGS.share * firsts + SETTINGS.least
    assert all(taken), "one process has taken all of it"
