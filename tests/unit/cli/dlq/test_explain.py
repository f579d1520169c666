from __future__ import annotations

import json
import re
from datetime import timedelta

from tests.contracts.ledger import letter_of
from tests.judging import classifier
from tests.unit.analysis.classification.test_evidence_collector import FakeControls
from tests.unit.cli.ledger_app import held

from angzarr.analysis.classification.evidence_collector import BreakerLook
from angzarr.analysis.classification.rules import PythonRule
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import BreakerSettings, BreakerState, Phase

DEFECT = {"category": "unknown", "error_type": "KeyError", "error_message": "'size'"}


def look(controls):
    return BreakerLook(
        controls=controls,
        names_of=lambda _handler: ("crm",),
        settings_of=lambda _name: BreakerSettings(),
        clock=SystemClock(),
    )


def test_explain_tells_class_rule_and_every_rule_before_it(ledger, run):
    entry = held(ledger, **DEFECT)
    result = run("dlq", "explain", entry.id[:12], "--all")
    assert result.exit_code == 0, result.output
    assert "is code_defect, held: a bug" in result.output
    assert "now it would be code_defect: hold, by rule defect of" in result.output
    assert "✗ │ revoked" in result.output
    assert "reason is exhausted, not revoked" in result.output
    assert "· │ nothing-fits" in result.output  # behind the one that decides
    assert "comes later: always" in result.output
    assert re.search(r"a newer release runs +│ unknown", result.output)


def test_without_all_only_the_rule_that_decides_is_shown(ledger, run):
    entry = held(ledger, **DEFECT)
    output = run("dlq", "explain", entry.id[:12]).output
    assert "✓ │ defect" in output
    assert "✗" not in output
    assert "nothing-fits" not in output
    assert re.search(r"\d+ rules before it did not fit; --all shows every rule", output)


def test_a_rule_that_broke_is_shown_too(app, ledger, run):
    def odd(_letter, _evidence):
        raise ValueError("odd")

    app.dlq_classifier = lambda chance: classifier((), [PythonRule(name="odd", judge=odd)])
    output = run("dlq", "explain", held(ledger, **DEFECT).id).output
    assert "! │ odd" in output
    assert output.index("✓ │") < output.index("! │")


def test_a_long_message_is_shown_whole_once(ledger, run):
    message = "y" * 5_000
    output = run("dlq", "explain", held(ledger, **DEFECT | {"error_message": message}).id).output
    assert 5_000 < output.count("y") < 6_000


def test_explain_changes_nothing(ledger, run):
    entry = held(ledger, **DEFECT)
    run("dlq", "explain", entry.id)
    assert ledger.open(entry.id).entry == entry


def test_explain_as_json_has_all_rules_and_all_evidence(ledger, run):
    entry = held(ledger, **DEFECT)
    told = json.loads(run("dlq", "explain", entry.id, "--json").output)
    assert (told["id"], told["failure_class"]) == (entry.id, "code_defect")
    assert told["now"]["rule"] == "defect"
    assert told["now"]["action"] == "hold"
    (decisive,) = [rule for rule in told["rules"] if rule["decides"]]
    assert decisive["name"] == "defect"
    assert told["rules"][-1] == {
        "name": "nothing-fits",
        "source": told["rules"][-1]["source"],
        "fits": True,
        "decides": False,
        "failure_class": "unknown",
        "action": "hold",
        "because": "always",
        "failed": False,
    }
    unknown = {one["name"] for one in told["evidence"] if not one["known"]}
    assert {"breakers", "a newer release runs", "the event decodes", "others pass"} <= unknown


def test_explain_sees_the_breakers_as_they_are_now(app, ledger, run):
    app.look = look(FakeControls(crm=BreakerState(phase=Phase.OPEN)))
    entry = held(ledger, "e1", last_attempt_at=SystemClock().now() - timedelta(minutes=1))
    told = json.loads(run("dlq", "explain", entry.id, "--json").output)
    assert (told["now"]["failure_class"], told["now"]["action"]) == ("transient_ongoing", "wait")
    (clue,) = [one for one in told["evidence"] if one["name"] == "breaker"]
    assert (clue["says"], clue["source"]) == ("crm open", "flow store")
    assert clue["at"]


def test_what_overruled_a_rule_is_said(ledger, run):
    entry = held(ledger)
    ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=timedelta(0))
    for replay in (1, 2, 3):
        found = ledger.add_failed_event(letter_of(replay=replay))
        ledger.mark_retrying(
            entry.id, replay + 1, revision=found.revision, by="me", lease=timedelta(0)
        )
    result = run("dlq", "explain", entry.id)
    assert "overruled: 4 of 3 replays used" in result.output


def test_text_from_outside_is_shown_and_not_obeyed(ledger, run):
    entry = held(ledger, **DEFECT | {"error_message": "\x1b[2J[bold]x[/bold]"})
    output = run("dlq", "explain", entry.id).output
    assert "\x1b[2J" not in output
    assert "[bold]x[/bold]" in output


def test_rules_that_cannot_be_are_one_clear_sentence(app, ledger, run):
    entry = held(ledger)

    def refuse(_chance):
        raise ConfigurationError("rule x: handlr is no condition")

    app.dlq_classifier = refuse
    result = run("dlq", "explain", entry.id)
    assert result.exit_code != 0
    assert result.output.startswith("Error: rule x: handlr")
