"""Which breaker counts for a replay job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import START, HandClock

from angzarr.analysis.classification.evidence_collector import BreakerLook
from angzarr.analysis.replay.job_limits import Target
from angzarr.analysis.replay.job_runner import TargetPhases
from angzarr.errors import StoreUnavailable
from angzarr.resilience.breaker import BreakerSettings, BreakerState, Phase


class Controls:
    def __init__(self, states):
        self.given = states

    def states(self):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def phases_of(states):
    look = BreakerLook(
        controls=Controls(states),
        names_of=lambda handler: ("bank", "mail") if handler == "pay" else None,
        settings_of=lambda _name: BreakerSettings(),
        clock=HandClock(),
        wave_of=lambda _handler: "wave:order",
    )
    return TargetPhases(look=look)


WELL = {"bank": BreakerState(), "mail": BreakerState()}


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ({}, None),
        (WELL, Phase.CLOSED),
        ({"bank": BreakerState(), "mail": BreakerState(phase=Phase.HALF_OPEN)}, Phase.HALF_OPEN),
        (
            {"bank": BreakerState(phase=Phase.ISOLATED), "mail": BreakerState(phase=Phase.OPEN)},
            Phase.ISOLATED,
        ),
        (WELL | {"wave:order": BreakerState(phase=Phase.OPEN)}, Phase.OPEN),
        ({"others": BreakerState(phase=Phase.OPEN)}, None),
        (
            {"bank": BreakerState(phase=Phase.OPEN, retry_at=START + timedelta(seconds=1))},
            Phase.OPEN,
        ),
        (WELL | {"bank": BreakerState(phase=Phase.OPEN, retry_at=START)}, Phase.HALF_OPEN),
        (StoreUnavailable("away"), None),
    ],
)
def test_the_worst_breaker_of_the_handlers_counts(states, phase):
    target = phases_of(states)(["pay"])
    assert (target and target.phase) is phase


def test_what_is_in_the_way_is_named_even_where_it_is_not_the_handlers_own():
    due = START + timedelta(minutes=1)
    states = WELL | {
        "wave:order": BreakerState(phase=Phase.OPEN, retry_at=due),
        "mail": BreakerState(phase=Phase.OPEN, retry_at=START),
    }
    target = phases_of(states)(["pay", "pay", "x"])
    assert [(one.name, one.retry_at) for one in target.barring] == [("wave:order", due)]
    assert phases_of(WELL)(["pay"]).barring == ()


def test_a_breaker_that_ramps_up_is_worse_than_a_closed_one():
    ramping = BreakerState(changed_at=START, ramp_from=START)
    assert phases_of(WELL | {"bank": ramping})(["pay"]) == Target(Phase.CLOSED, ramping=True)
    assert phases_of(WELL)(["pay"]) == Target(Phase.CLOSED)


def test_unknown_handlers_and_breakers_of_each_process_say_nothing():
    assert TargetPhases(look=None)(["pay"]) is None
    assert phases_of({"bank": BreakerState(phase=Phase.OPEN)})(["x"]) is None
