"""What an analysis worker answers to probes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.analysis.worker.worker import AnalysisHealth, AnalysisWorker
from angzarr.errors import BrokerUnavailable, DeadLetterQueueUnavailable, LedgerUnavailable
from angzarr.runtime.health_report import Heartbeat


class Fails:
    name = "letters"

    def __init__(self) -> None:
        self.error: Exception | None = None

    def turn(self, _wait: timedelta) -> int:
        if self.error is not None:
            raise self.error
        return 0


class World:
    def __init__(self) -> None:
        self.now, self.stops = 0.0, False
        self.duty = Fails()
        self.worker = AnalysisWorker(
            duties=[self.duty], name="a", chance=lambda: 0.5, pulse=Heartbeat(lambda: self.now)
        )
        self.health = AnalysisHealth(self.worker, stalled_after=60, stopping=lambda: self.stops)

    def broken(self, probe: str) -> list[str]:
        report = getattr(self.health, probe)()
        return [name for name, holds, _ in report.conditions if not holds]


@pytest.fixture
def world():
    return World()


def test_it_is_not_ready_before_its_first_round(world):
    assert (world.broken("live"), world.broken("ready")) == ([], ["rounds"])
    world.worker.step()
    assert world.broken("ready") == []


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (LedgerUnavailable("l"), "ledger"),
        (DeadLetterQueueUnavailable("d"), "dead_letters"),
        (BrokerUnavailable("b"), "broker"),
        (RuntimeError("password=hunter2"), "duties"),
    ],
)
def test_it_is_live_and_not_ready_while_a_server_is_away(world, error, condition):
    world.duty.error = error
    for _ in range(10):
        world.now += 15
        world.worker.step()
    assert (world.broken("live"), world.broken("ready")) == ([], [condition])
    assert b"hunter2" not in world.health.ready().body()
    world.duty.error = None
    world.worker.step()
    assert world.broken("ready") == []


def test_a_duty_that_never_ends_is_dead(world):
    world.worker.step()
    world.now += 61
    assert world.broken("live") == ["rounds"]


def test_one_that_stops_is_not_ready_and_stays_live(world):
    world.worker.step()
    world.stops, world.now = True, 1000.0
    assert (world.broken("live"), world.broken("ready")) == ([], ["running"])


def test_facts_that_wait_are_told_and_make_it_no_less_ready(world):
    world.worker.step()
    assert b'"facts": {"ok": true, "says": "they are moved"}' in world.health.ready().body()
    world.worker.facts_say = lambda: "facts wait in the outbox for 40 s, 3 of them: no such host"
    assert world.broken("ready") == []
    assert b"3 of them: no such host" in world.health.ready().body()
