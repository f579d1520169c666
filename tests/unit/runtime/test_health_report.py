from __future__ import annotations

import json

from angzarr.runtime.health_report import LONGEST, Condition, Heartbeat, Report


def test_one_condition_that_does_not_hold_is_enough():
    held, missed = Condition("a", holds=True, says="yes"), Condition("b", holds=False, says="no")
    assert Report("live", [held]).holds
    assert not Report("live", [held, missed]).holds


def test_the_body_lists_each_condition():
    report = Report(
        "ready", [Condition("a", holds=True, says="yes"), Condition("b", holds=False, says="no")]
    )
    assert json.loads(report.body()) == {
        "probe": "ready",
        "ok": False,
        "conditions": {"a": {"ok": True, "says": "yes"}, "b": {"ok": False, "says": "no"}},
    }


def test_what_a_condition_says_is_bounded():
    told = json.loads(Report("live", [Condition("a", holds=True, says="x" * 10_000)]).body())
    assert len(told["conditions"]["a"]["says"]) == LONGEST


def test_a_pulse_is_as_old_as_its_last_beat():
    now = [10.0]
    pulse = Heartbeat(lambda: now[0])
    now[0] = 15.0
    assert pulse.age() == 5
    pulse.beat()
    assert pulse.age() == 0
