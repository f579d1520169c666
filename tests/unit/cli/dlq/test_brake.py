"""angzarr dlq brake."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import message_of
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger import emergency_stop as brake
from angzarr.wiring.analysis_worker import person

BODY = json.dumps([[{"total": 3}], {}, {}]).encode()


def test_a_brake_is_pulled_shown_and_released(app, run):
    assert "released" in run("dlq", "brake", "status").output
    pulled = run("dlq", "brake", "pull", "--why", "the CRM is ill", "--for", "2h")
    assert "nothing is replayed by itself" in pulled.output
    state = json.loads(run("dlq", "brake", "status", "--json").output)
    assert (state["holds"], state["why"]) == ("automatic", "the CRM is ill")
    assert state["until"]
    assert "jobs included" in run("dlq", "brake", "pull", "--all").output
    assert "go on" in run("dlq", "brake", "release").output
    history = json.loads(run("dlq", "brake", "history", "--json").output)
    assert [one["scope"] for one in history] == ["automatic", "all", "nothing"]
    told = run("dlq", "brake", "history").output
    assert "the CRM is ill" in told
    assert "  released by " in told


def test_a_duration_that_is_none_is_refused(app, fails):
    assert "write 90s, 15m" in fails("dlq", "brake", "pull", "--for", "soon", code=2)


def test_a_second_pull_says_what_holds_and_weakens_nothing(app, run):
    run("dlq", "brake", "pull", "--all")
    weaker = run("dlq", "brake", "pull", "--for", "15m", "--json").output
    assert (json.loads(weaker)["holds"], json.loads(weaker)["until"]) == ("all", None)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["compensate", "ENTRY", "--yes"], "or undo it by hand"),
        (["edit", "ENTRY", "--file", "-", "--yes"], "release it first"),
        (["replay", "--status", "held", "--now", "--yes"], "or replay one entry by its id"),
    ],
)
def test_while_it_holds_all_people_are_told_who_pulled_it(app, ledger, run, command, said):
    entry = held(ledger, message=replace(message_of("e1"), body=BODY))
    run("dlq", "brake", "pull", "--all", "--why", "the CRM is ill")
    words = [entry.id if word == "ENTRY" else word for word in command]
    done = run("dlq", *words, input='{"total": 4}')
    told = " ".join(done.output.split())
    assert done.exit_code == 1
    assert f"the brake was pulled by {person()}: the CRM is ill" in told
    assert said in told
    assert app.publisher.sent == app.compensating.sent == []
    assert ledger.open(entry.id).entry == entry
    run("dlq", "brake", "release")
    assert run("dlq", *words, input='{"total": 4}').exit_code == 0


def test_one_entry_is_replayed_by_its_id_all_the_same(app, ledger, run):
    entry = held(ledger)
    run("dlq", "brake", "pull", "--all")
    assert run("dlq", "replay", entry.id, "--yes").exit_code == 0
    assert len(app.publisher.sent) == 1


def test_a_second_pull_does_not_hide_who_pulled_first_and_why(app, run):
    run("dlq", "brake", "pull", "--why", "the CRM is ill")
    pulled = run("dlq", "brake", "pull", "--all", "--why", "so is the ERP").output
    assert pulled == run("dlq", "brake", "status").output
    assert pulled.index("first pulled by") < pulled.index("the CRM is ill")
    assert "so is the ERP" in pulled
    told = json.loads(run("dlq", "brake", "status", "--json").output)
    assert (told["first"]["why"], told["why"]) == ("the CRM is ill", "so is the ERP")
    assert "first pulled" not in run("dlq", "brake", "release").output


def test_a_first_pull_that_is_too_far_back_is_not_made_up(app, run, monkeypatch):
    monkeypatch.setattr(brake, "MOST_PULLS", 2)
    for why in ("INC-77", "renewed", "again"):
        run("dlq", "brake", "pull", "--why", why)
    said = run("dlq", "brake", "status").output
    assert "first pulled" not in said
    assert "or earlier; then pulled by" in said
    told = json.loads(run("dlq", "brake", "status", "--json").output)
    assert (told["first"]["why"], told["first"]["earlier"]) == ("renewed", True)
