"""Compensation by rule through the worker as it is put together, on SQLite."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.analysis.replay.test_compensation import BODY, message_of
from tests.unit.analysis.test_compensation_by_rule import RULE

from angzarr.analysis.ledger.entry import Status
from angzarr.dead_letters.letter import DeadLetter
from angzarr.wiring.analysis_worker import open_worker


@pytest.fixture
def refused(app) -> DeadLetter:
    app.rules = (RULE,)
    return letter_of(error_type="shop.OutOfStock", message=replace(message_of(), body=BODY))


def turn(app):
    with open_worker(app, ["order"]) as worker:
        worker.step()


def entry_in(ledger):
    (entry,) = ledger.get_failed_events(status=None).entries
    return entry


def test_it_is_compensated_once_and_the_entry_shows_the_rule(app, ledger, run, refused):
    app.queue.put([refused])
    for _ in range(3):
        turn(app)
    assert entry_in(ledger).status is Status.COMPENSATED
    assert len(app.compensating.sent) == 1
    shown = run("dlq", "show", entry_in(ledger).id).output
    assert "as rule refund-what-was-refused says" in " ".join(shown.split())


@pytest.mark.parametrize("scope", ["automatic", "all"])
def test_the_brake_holds_it(app, ledger, run, refused, scope):
    pulled = run("dlq", "brake", "pull", *(["--all"] if scope == "all" else []), "--why", "wait")
    assert pulled.exit_code == 0, pulled.output
    app.queue.put([refused])
    turn(app)
    assert entry_in(ledger).status is Status.WAITING
    assert not app.compensating.sent
    assert run("dlq", "brake", "release").exit_code == 0
    turn(app)
    assert len(app.compensating.sent) == 1


def test_explain_says_what_undoes_it_and_by_which_rule(ledger, run, refused):
    entry = ledger.add_failed_event(refused)
    said = " ".join(run("dlq", "explain", entry.id).output.split())
    assert "now it would be business_rejection: compensate, by rule refund-what" in said
    assert "undone by │ orders.unsync" in said
    told = json.loads(run("dlq", "explain", entry.id, "--json").output)
    assert told["now"]["action"] == "compensate"


def test_explain_says_why_nothing_undoes_it(ledger, run, refused):
    entry = ledger.add_failed_event(replace(refused, handler="mail.send"))
    told = json.loads(run("dlq", "explain", entry.id, "--json").output)["now"]
    assert told["action"] == "hold"
    assert "register it with compensation=" in told["overruled"]
