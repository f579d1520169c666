"""What shared breakers cost: commands and round trips."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.breakers import DEFAULTS, LONG, TOUCHY, Diary, call, fresh, phase, refused

from angzarr.adapters.redis import breaker_state as breaker_seen
from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.breaker import BreakerSettings, Permit, Phase


class StillLine(FlowLine):
    """Its thread never runs: a test takes its turns."""

    listening = True
    trips = 0

    def start(self):
        pass

    def __init__(self, url, **options):
        super().__init__(url, **options)
        exchange = self.client._call

        def counted(send, *what):
            self.trips += 1
            return exchange(send, *what)

        self.client._call = counted


@pytest.fixture
def line(redis_url):
    line = StillLine(redis_url, prefix=fresh())
    yield line
    line.close()


def breakers_on(line, settings=None, default=DEFAULTS):
    breakers = RedisBreakers(line, settings, default, Diary())
    call(breakers, "warm", "+")
    line._turn()  # Redis knows the script now
    line.trips = 0
    return breakers


def test_a_closed_breaker_costs_nothing_a_call_and_its_successes_are_told_together(line):
    breakers = breakers_on(line)
    call(breakers, "crm", "+")
    line.trips = 0
    call(breakers, "crm", "+" * 5000)
    assert line.trips == 0
    line._turn()
    assert line.trips == 1
    assert sum(tally.calls for tally in breakers.states()["crm"].tallies) == 5001


def test_a_failure_is_told_at_once_with_what_went_before_it(line):
    breakers = breakers_on(line, default=TOUCHY)
    call(breakers, "crm", "++")
    line.trips = 0
    call(breakers, "crm", "-")
    assert line.trips == 1
    state = breakers.states()["crm"]
    assert (sum(tally.calls for tally in state.tallies), state.in_a_row) == (3, 1)


def test_a_slow_call_is_told_at_once(line):
    breakers = breakers_on(line, default=BreakerSettings(slow_call=timedelta(seconds=1)))
    call(breakers, "crm", "+")
    line.trips = 0
    call(breakers, "crm", "+", took=timedelta(seconds=1))
    assert line.trips == 1


def test_an_open_breaker_costs_nothing_a_call_but_the_first_refusal(line):
    breakers = breakers_on(line, default=TOUCHY)
    call(breakers, "crm", "---")
    assert refused(breakers, "crm")
    line.trips = 0
    assert all(refused(breakers, "crm") for _ in range(1000))
    assert line.trips == 0


def test_a_ramp_up_costs_nothing_a_call(line):
    breakers = breakers_on(line, default=BreakerSettings(ramp_up=LONG))
    breakers.isolate("crm", by="ann")
    breakers.reset("crm", by="ann")
    refused(breakers, "crm")
    while not refused(breakers, "crm"):
        pass
    line.trips = 0
    for _ in range(1000):
        refused(breakers, "crm")
    assert line.trips == 0


def test_many_breakers_are_told_and_looked_at_in_few_round_trips(line):
    breakers = breakers_on(line)
    names = [f"tenant-{number}" for number in range(250)]
    for name in names:
        assert breakers.known(name) is None
    line._turn()
    assert line.trips == 3
    assert all(isinstance(breakers.known(name), Permit) for name in names)
    for name in names:
        call(breakers, name, "+")
    line.trips = 0
    line._turn()
    assert line.trips == 3
    line._heard("breaker", "")
    assert line.trips == 6
    assert len(breakers.states()) == 251
    assert line.trips == 10


def swept(line):
    """Let two sweeps pass."""
    for _ in range(2):
        line._turn()


def test_names_that_are_not_used_any_more_cost_nothing(line, monkeypatch):
    breakers = breakers_on(line, default=TOUCHY)
    for name in ("open", "open", "open", *(f"tenant-{number}" for number in range(100))):
        call(breakers, name, "-")
    breakers.isolate("isolated", by="ann")
    monkeypatch.setattr(breaker_seen, "IDLE", 0.0)
    swept(line)
    assert breakers.phases() == {"open": Phase.OPEN, "isolated": Phase.ISOLATED}
    assert (breakers._seen.permits, breakers._seen._used) == ({}, set())
    assert breakers._seen._heard_at.keys() == {"open", "isolated"}
    line.trips = 0
    line._heard("breaker", "")
    assert line.trips == 1
    call(breakers, "tenant-7", "-")
    assert breakers.states()["tenant-7"].in_a_row == 2


def test_names_in_use_are_kept(line, monkeypatch):
    breakers = breakers_on(line)
    monkeypatch.setattr(breaker_seen, "IDLE", 0.0)
    for _ in range(3):
        call(breakers, "crm", "+")
        line._turn()
        assert breakers.phases()["crm"] is Phase.CLOSED


def test_a_call_counts_that_takes_longer_than_its_breaker_is_remembered(line, monkeypatch):
    breakers = breakers_on(line)
    call(breakers, "crm", "+")
    permit = breakers.admit("crm", "t")
    monkeypatch.setattr(breaker_seen, "IDLE", 0.0)
    swept(line)
    assert breakers.phases() == {}
    breakers.record(permit, ok=False, took=LONG)
    assert breakers.states()["crm"].in_a_row == 1


def test_a_change_of_a_breaker_that_is_not_in_use_costs_nothing(line):
    breakers = breakers_on(line)
    line._heard("breaker", "unknown here")
    assert line.trips == 0
    assert "unknown here" not in breakers.phases()


def test_a_batch_of_an_earlier_era_is_not_told(line):
    breakers = breakers_on(line, default=TOUCHY)
    call(breakers, "crm", "++")
    breakers.isolate("crm", by="ann")
    line.trips = 0
    line._turn()
    assert line.trips == 0
    assert phase(breakers, "crm") is Phase.ISOLATED
