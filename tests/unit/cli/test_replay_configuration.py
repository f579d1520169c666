"""A person who replays chooses the versions of configurations, and sees what that changes (F3)."""

from __future__ import annotations

import json

import pytest
from tests.contracts.configuration import act, draft
from tests.contracts.ledger import message_of
from tests.unit.cli.ledger_app import held

from angzarr.events import headers as names

NEWEST = ("--config", "newest")


@pytest.fixture
def app(app):
    for value in ('{"net":"1.10","tax":19}', '{"net":"1.20","tax":19}'):
        app.configurations.put(draft("pricing", value))
    app.configurations.put(draft("tax", "7"))
    return app


def pinned(ledger, event_id="e1", pins='{"pricing": "1", "other": "5"}'):
    message = message_of(event_id, **({names.CONFIG_PINS: pins} if pins else {}))
    return held(ledger, event_id, message=message)


def sent(app):
    return [message.headers.get(names.CONFIG_PINS) for message in app.publisher.sent]


def test_one_is_replayed_as_pinned_unless_a_person_says_otherwise(app, ledger, run):
    run("dlq", "replay", pinned(ledger, "e1").id, "--yes")
    run("dlq", "replay", pinned(ledger, "e2").id, "--yes", "--config", "as-pinned")
    run("dlq", "replay", pinned(ledger, "e3").id, "--yes", *NEWEST)
    assert [json.loads(one) for one in sent(app)] == [
        {"pricing": "1", "other": "5"}, {"pricing": "1", "other": "5"},
        {"pricing": "2", "other": "5"},
    ]  # fmt: skip


def test_what_it_changes_is_shown_before_it_is_sent(app, ledger, run):
    asked = run("dlq", "replay", pinned(ledger).id, *NEWEST, input="n\n")
    assert 'configuration pricing: 1 → 2\n  /net: "1.10" → "1.20"\nReplay 1 entry?' in asked.output
    assert not app.publisher.sent
    shown = run("dlq", "replay", pinned(ledger).id, *NEWEST, "--yes", "--json")
    assert "configuration pricing: 1 → 2" in shown.stderr
    assert json.loads(shown.stdout)


def test_where_nothing_changes_it_says_so(app, ledger, run):
    entry = pinned(ledger, pins='{"pricing": "2"}')
    assert (
        "are those that they are pinned to"
        in run("dlq", "replay", entry.id, *NEWEST, input="n\n").output
    )


def test_an_event_that_was_never_pinned_is_sent_as_it_is(app, ledger, run):
    run("dlq", "replay", pinned(ledger, pins=None).id, "--yes", *NEWEST)
    assert sent(app) == [None]


def test_a_version_that_is_gone_is_said(app, ledger, run):
    entry = pinned(ledger, pins='{"pricing": "a b\\u001b"}')
    told = run("dlq", "replay", entry.id, *NEWEST, input="n\n").output
    assert "is not in the store any more" in told
    assert "\x1b" not in told


def test_the_newest_is_the_one_that_a_person_chose(app, ledger, run):
    app.configurations.choose("pricing", "1", act())
    run("dlq", "replay", pinned(ledger, pins='{"pricing": "2"}').id, "--yes", *NEWEST)
    assert [json.loads(one) for one in sent(app)] == [{"pricing": "1"}]


def test_the_history_says_who_chose_which_versions(app, ledger, run):
    entry = pinned(ledger)
    run("dlq", "replay", entry.id, "--yes", *NEWEST)
    history = json.loads(run("dlq", "show", entry.id, "--json").output)["history"]
    told = [one for one in history if "with configuration pricing 2 and tax 1" in json.dumps(one)]
    assert told
    assert told[0]["who"]


def test_many_are_a_job_that_keeps_to_the_versions_that_were_shown(app, ledger, run):
    pinned(ledger, "e1"), pinned(ledger, "e2")
    every = ("dlq", "replay", "--status", "held", *NEWEST)
    assert "configuration pricing: 1 → 2" in run(*every, input="n\n").output
    job = json.loads(run(*every, "--yes", "--json").stdout)
    app.configurations.put(draft("pricing", "3"))
    assert job["plan"]["config"] == [["pricing", "2"], ["tax", "1"]]
    shown = run("dlq", "jobs", "show", job["id"]).output
    assert "with configuration pricing 2 and tax 1" in shown


def test_an_edit_may_see_the_newest_too(app, ledger, run):
    edit = ("dlq", "edit", pinned(ledger).id, "--file", "-", "--yes", *NEWEST)
    told = run(*edit, input='{"total": 4}')
    assert told.exit_code == 0, told.output
    assert "configuration pricing: 1 → 2" in told.stderr
    assert json.loads(sent(app)[0])["pricing"] == "2"


def test_an_edit_is_sent_as_pinned_unless_a_person_says_otherwise(app, ledger, run):
    edit = ("dlq", "edit", pinned(ledger).id, "--file", "-", "--yes")
    assert run(*edit, input='{"total": 4}').exit_code == 0
    assert json.loads(sent(app)[0]) == {"pricing": "1", "other": "5"}


def test_bad_input_is_one_sentence(app, ledger, fails):
    entry = pinned(ledger)
    assert "'as-pinned', 'newest'" in fails(
        "dlq", "replay", entry.id, "--config", "old", "--yes", code=2
    )
    app.configurations.__init__()
    told = fails("dlq", "replay", entry.id, *NEWEST, "--yes", code=2)
    assert "there is no configuration, so none has a newest version: leave --config out" in told
