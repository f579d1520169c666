"""angzarr dlq compensate, and compensation by rule through the worker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of, message_of
from tests.unit.analysis.test_compensation_by_rule import RULE
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.entry import Status
from angzarr.dead_letters.letter import DeadLetter
from angzarr.wiring.analysis_worker import open_worker, person
from memory_payloads import MemoryPayloadStore

BODY = json.dumps([[{"total": 3}], {}, {}]).encode()


def entry_of(ledger, event_id="e1", **fields):
    return held(ledger, event_id, message=replace(message_of(event_id), body=BODY), **fields)


def test_entries_are_compensated_and_it_is_told_by_whom_and_why(app, ledger, run):
    entry = entry_of(ledger)
    done = run("dlq", "compensate", entry.id, "--yes", "--note", "refund")
    assert done.exit_code == 0, done.output
    (call,) = app.compensating.sent
    assert (call.task, call.args) == ("orders.unsync", ({"total": 3},))
    found = ledger.open(entry.id)
    assert found.entry.status is Status.COMPENSATED
    said = next(line for line in found.history if line.what == "compensate")
    assert (said.who, said.detail) == (person(), "refund")


def test_a_body_that_is_too_large_to_be_shown_is_compensated_all_the_same(app, ledger, run):
    app.payloads = MemoryPayloadStore()
    app.settings.dlq.payloads.largest_opened = 3
    bare = replace(message_of(), body=b"")
    entry = held(ledger, message=bare, payload=app.payloads.put(BODY))
    assert run("dlq", "compensate", entry.id, "--dry-run").exit_code == 0
    done = run("dlq", "compensate", entry.id, "--yes")
    assert done.exit_code == 0, done.output
    assert app.compensating.sent[0].args == ({"total": 3},)


def test_a_dry_run_says_what_could_not_be(app, ledger, run):
    entry_of(ledger)
    entry_of(ledger, "e2", handler="mail.send")
    done = run("dlq", "compensate", "--status", "held", "--dry-run")
    assert done.exit_code == 1
    assert "would be compensated" in done.output
    assert "names no compensation" in " ".join(done.output.split())
    assert app.compensating.sent == []


def test_a_broker_that_is_away_leaves_it_to_the_worker(app, ledger, run):
    entry = entry_of(ledger)
    app.compensating.away = True
    done = run("dlq", "compensate", entry.id, "--yes")
    assert done.exit_code == 1
    assert "the analysis worker sends it" in " ".join(done.output.split())
    assert ledger.open(entry.id).entry.wake_at is not None


# -- by rule -------------------------------------------------------------------------------------


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
