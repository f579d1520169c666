"""angzarr dlq compensate."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.contracts.ledger import message_of
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.entry import Status
from angzarr.wiring.analysis_worker import person
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
