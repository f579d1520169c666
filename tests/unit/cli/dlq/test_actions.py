"""angzarr dlq skip, archive, restore, escalate, resolve."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli.ledger_app import held, one_by_one

from angzarr.analysis.ledger.entry import Status
from angzarr.wiring.analysis_worker import person


def status_of(ledger, entry):
    return ledger.open(entry.id).entry.status


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        ("skip", Status.SKIPPED),
        ("archive", Status.ARCHIVED),
        ("escalate", Status.ESCALATED),
        ("resolve", Status.RESOLVED),
    ],
)
def test_a_person_says_what_becomes_of_an_entry_and_why(app, ledger, run, verb, status):
    entry = held(ledger)
    done = run("dlq", verb, entry.id[:8], "--yes", "--note", "ticket 7")
    assert (done.exit_code, status_of(ledger, entry)) == (0, status)
    line = ledger.open(entry.id).history[-1]
    assert (line.who, line.what, line.detail) == (person(), verb, "ticket 7")


def test_what_was_skipped_is_brought_back(app, ledger, run):
    entry = held(ledger)
    assert run("dlq", "skip", entry.id, "--yes").exit_code == 0
    assert run("dlq", "restore", entry.id, "--yes").exit_code == 0
    assert status_of(ledger, entry) is Status.HELD


def test_a_filter_reaches_more_than_one_batch_and_only_what_the_verb_fits(app, ledger, run):
    entries = [held(ledger, f"e{number}") for number in range(103)]
    assert run("dlq", "skip", entries[0].id, "--yes").exit_code == 0
    done = run("dlq", "archive", "--status", "held", "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.output)) == 102
    assert {status_of(ledger, one) for one in entries[1:]} == {Status.ARCHIVED}
    assert status_of(ledger, entries[0]) is Status.SKIPPED


def test_a_limit_bounds_what_a_filter_reaches(app, ledger, run):
    oldest, *newest = one_by_one(ledger, 3)
    asked = ("dlq", "skip", "--domain", "order", "--limit", "2", "--yes", "--json")
    dry = run(*asked, "--dry-run")
    done = run(*asked)
    shown, skipped = ([one["id"] for one in json.loads(it.output)] for it in (dry, done))
    assert shown == skipped == [one.id for one in reversed(newest)]
    assert status_of(ledger, oldest) is Status.HELD


def test_a_dry_run_says_what_would_be_done_and_does_nothing(app, ledger, run):
    entry = held(ledger)
    done = run("dlq", "skip", entry.id, "--dry-run")
    assert "would be skipped" in done.output
    assert status_of(ledger, entry) is Status.HELD


def test_it_asks_first_and_takes_no_for_an_answer(app, ledger, run):
    entry = held(ledger)
    done = run("dlq", "skip", entry.id, input="n\n")
    assert "Skip 1 entry?" in done.output
    assert done.exit_code == 1
    assert status_of(ledger, entry) is Status.HELD


def test_what_does_not_apply_says_why_and_fails_the_command(app, ledger, run, fails):
    entry, other = held(ledger), held(ledger, "e2")
    assert "the entry is held already" in fails("dlq", "restore", entry.id, "--yes")
    assert ledger.mark_retrying(
        other.id, 1, revision=2, by="me", lease=app.settings.analysis.answer_deadline
    )
    assert "wait for its answer" in run("dlq", "skip", other.id, "--yes").output


@pytest.mark.parametrize("arguments", [(), ("abcdef", "--domain", "order")])
def test_it_must_be_told_which(app, fails, arguments):
    assert "either entries by id, or a filter" in fails("dlq", "skip", *arguments, code=2)


def test_a_note_that_is_too_long_is_refused(app, ledger, fails):
    output = fails("dlq", "skip", held(ledger).id, "--note", "x" * 2_001, code=2)
    assert "at most 2000 characters" in output
