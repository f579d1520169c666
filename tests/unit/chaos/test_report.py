"""The report names what is wrong, with the event's history, and says what became of each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.chaos.conftest import a_run, around, cut, disturbed, planned

from chaos import report
from chaos.disturbances import What
from chaos.evidence import Evidence
from chaos.faults import Fault
from chaos.injectors import Injected
from chaos.site import Order, Outcome
from chaos.verdict import judge

KILL = Fault(number=1, kind="kill worker", lane="fleet", at=1.0, seconds=0.0, target=0)


@pytest.fixture
def outcome():
    """Run ok-1, cut on w1 and again on w2; ok-2 is lost. The kill was at 1.5."""

    def make(*runs):
        events = [planned("ok", 1), planned("ok", 2)]
        evidence = Evidence(
            published=events,
            sent_at={"ok-1": 0.5, "ok-2": 0.6},
            runs=runs,
            entries=[],
            around=around(disturbed(What.KILLED, 1.5)),
        )
        killed = Injected(fault=KILL, began=1.4, over=1.5, victim="w1", successor="w2")
        return Outcome(
            order=Order(broker="redis", seconds=10, seed=1, folder=Path()),
            evidence=evidence, verdict=judge(evidence), injected=(killed,), sends=2, held=0.5,
            stops=(2.0,), seconds=20.0,
        )  # fmt: skip

    return make


def test_a_lost_event_is_named_with_its_history(outcome):
    said = report.render(outcome(cut(1.0), a_run(9, 9.5, worker="w2")))
    assert "LOST ok-2: chaos.main of a ok: never ran, not in the ledger" in said
    assert "2 published = 1 handled + 0 skipped + 0 in the ledger; lost 1" in said
    assert "BREACHES: 1" in said


def test_a_repeated_effect_is_shown_run_by_run(outcome):
    runs = [a_run(0.8, 0.9, worker="w3"), a_run(9, 9.5, worker="w2")]
    said = report.render(outcome(*runs, a_run(3, 4, event="ok-2")))
    assert "REPEATED ok-1: w2 began 8.10 s after it had ended on w3" in said
    assert "began     chaos.main on w3 (1), attempt 1, hop 0" in said
    assert "ended     chaos.main on w2 (1), attempt 1, hop 0" in said


def test_what_is_well_is_said_to_be(outcome):
    said = report.render(outcome(a_run(3, 4), a_run(3, 4, event="ok-2")))
    assert "Everything is accounted for." in said


def test_a_fault_tells_what_it_cut_and_how_soon_the_fleet_worked_again(outcome):
    told = outcome(cut(1.0), a_run(9, 9.5, worker="w2"), a_run(3, 4, event="ok-2", worker="w3"))
    (line,) = [row for row in report.render(told).splitlines() if row.startswith("kill worker")]
    assert line.split()[2:] == [
        "1", "1", "1", "0", "2.50", "s", "(most", "2.50)", "8.00", "s", "(most", "8.00)"
    ]  # fmt: skip
    assert report.summary(told)["recovery_s"] == {"kill worker": [2.5]}
    assert report.summary(told)["cut"] == 1
