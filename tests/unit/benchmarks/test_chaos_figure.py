"""A run of the accounting checker with any breach at all does not reach its aim."""

from __future__ import annotations

import json

import pytest
from figures import chaos
from harness.figure import Aim, NotMeasured


@pytest.fixture
def summary(tmp_path):
    """Write what the checker found on one broker; returns the file."""

    def write(broker="redis", **breaches):
        told = {
            "broker": broker, "events": 10, "messages": 12, "runs": 11, "begun_under_faults": 9,
            "cut": 1, "faults": {"flood": 1}, "recovery_s": {"flood": [0.5]},
            "lost": breaches.get("lost", 0), "breaches": breaches,
        }  # fmt: skip
        path = tmp_path / f"{broker}.json"
        path.write_text(json.dumps(told))
        return path

    return write


def reached(measured):
    (figure,) = chaos.FIGURES
    return Aim.of(figure.aim).reached(figure.entry(measured)["value"])


def test_nothing_lost_and_no_breach_reaches_the_aim(summary):
    measured = chaos.judged(0, [summary(), summary("rabbitmq")])
    assert reached(measured)
    assert (measured.detail["lost"], measured.detail["breaches"]) == (0, "none")
    assert measured.detail["of_them_begun_under_faults"] == 18


@pytest.mark.parametrize("breach", ["lost", "repeated", "run void"])
def test_one_breach_on_one_broker_misses_the_aim(summary, breach):
    measured = chaos.judged(1, [summary(), summary("rabbitmq", **{breach: 1})])
    assert not reached(measured)
    assert measured.detail["breaches"] == {breach: 1}


@pytest.mark.parametrize(("code", "breaches"), [(1, {}), (0, {"repeated": 1})])
def test_an_exit_code_that_does_not_fit_what_was_found_is_no_measurement(summary, code, breaches):
    with pytest.raises(NotMeasured, match=f"ended with {code} and told {len(breaches)} breaches"):
        chaos.judged(code, [summary(**breaches)])


def test_a_broker_without_a_verdict_is_no_measurement(summary, tmp_path):
    with pytest.raises(NotMeasured, match="wrote no"):
        chaos.judged(0, [summary(), tmp_path / "rabbitmq.json"])
