"""A stale command is shown with what it expected, and replayed so or without."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import message_of
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.replay_options import STALE_AGAIN
from angzarr.dead_letters.letter import Mismatch, Reason
from angzarr.events import headers as names

COMMAND = "command.player.Pay"
FRESH = "--fresh-sequence"


@pytest.fixture(autouse=True)
def takes_commands(app, monkeypatch):
    known = app.replay_targets()
    targets = replace(known, tasks={*known.tasks, COMMAND})
    monkeypatch.setattr(app, "replay_targets", lambda: targets)


def stale(ledger, event_id="e1"):
    message = message_of(event_id, task=COMMAND, **{names.SEQUENCE: 3})
    return held(
        ledger, event_id, handler=COMMAND, message=message,
        reason=Reason.SEQUENCE_MISMATCH, mismatch=Mismatch(3, 5, 3),
    )  # fmt: skip


def expected(app):
    return [message.headers.get(names.SEQUENCE) for message in app.publisher.sent]


def test_one_is_sent_as_it_is_or_with_a_fresh_sequence(app, ledger, run):
    for number, options in enumerate(((), (FRESH,))):
        run("dlq", "replay", stale(ledger, f"e{number}").id, "--yes", *options)
    assert expected(app) == [3, None]


def test_who_sends_one_as_it_is_is_told_that_it_will_be_refused_again(app, ledger, run):
    entry = stale(ledger)
    asked = run("dlq", "replay", entry.id, input="n\n")
    assert f"{STALE_AGAIN} ({FRESH}).\nReplay 1 entry?" in asked.output
    assert STALE_AGAIN not in run("dlq", "replay", entry.id, FRESH, input="n\n").output
    assert STALE_AGAIN not in run("dlq", "replay", held(ledger, "e9").id, input="n\n").output
    assert not app.publisher.sent


def test_many_are_a_job_with_the_same_choice(app, ledger, run):
    stale(ledger, "e1"), stale(ledger, "e2")
    every = ("dlq", "replay", "--status", "held")
    assert (
        f"{STALE_AGAIN} ({FRESH}).\nReplay 2 entries in a job?" in run(*every, input="n\n").output
    )
    job = json.loads(run(*every, FRESH, "--yes", "--json").output)
    assert job["plan"]["sequence"] == "fresh_sequence"
    assert "with a fresh sequence" in run("dlq", "jobs", "show", job["id"]).output


def test_only_commands_are_sent_with_one(app, ledger, run, fails):
    output = fails("dlq", "replay", held(ledger).id, FRESH, "--yes")
    assert "only a command expects a sequence" in output
    stale(ledger, "e2")
    told = run("dlq", "replay", "--status", "held", FRESH, "--dry-run").output
    assert "1 would be replayed, 1 refused" in told
    assert not app.publisher.sent


def test_one_that_is_edited_is_sent_with_one_too(app, ledger, run):
    edit = ("dlq", "edit", stale(ledger).id, "--file", "-", "--yes")
    assert run(*edit, FRESH, input='{"total": 4}').exit_code == 0
    (message,) = app.publisher.sent
    assert (json.loads(message.body)[0], names.SEQUENCE in message.headers) == (
        [{"total": 4}],
        False,
    )


def test_a_second_person_approves_it_where_edits_are_approved(app, ledger, run):
    app.settings.analysis.approvals.edits = True
    entry = stale(ledger)
    assert run("dlq", "replay", entry.id, FRESH, "--yes").exit_code == 0
    proposed = run("dlq", "edit", stale(ledger, "e2").id, "--file", "-", "--yes", FRESH,
                   input='{"total": 4}')  # fmt: skip
    assert proposed.exit_code == 0, proposed.output
    jobs = json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"]
    told = {(one["status"], one["plan"]["sequence"]) for one in jobs}
    assert (len(jobs), told) == (2, {("proposed", "fresh_sequence")})
    assert not app.publisher.sent


def test_what_it_expected_is_shown(ledger, run):
    entry = stale(ledger)
    shown = run("dlq", "show", entry.id).output
    assert "expected sequence 3, the aggregate is at 5 (MANUAL)" in shown
    assert STALE_AGAIN in shown.replace("\n", "")
    told = json.loads(run("dlq", "show", entry.id, "--json").output)
    assert told["mismatch"] == {"expected": 3, "actual": 5, "strategy": "manual"}
    other = held(ledger, "e9").id
    assert json.loads(run("dlq", "show", other, "--json").output)["mismatch"] is None
    assert STALE_AGAIN not in run("dlq", "show", other).output
