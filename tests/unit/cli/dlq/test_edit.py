from __future__ import annotations

import json
import types

import click
import pytest
from tests.contracts.ledger import HOLD
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.ledger import Decided
from angzarr.errors import DecodeError


def test_data_from_a_file_is_shown_as_a_change_and_sent(app, ledger, run, tmp_path):
    entry = held(ledger)
    file = tmp_path / "new.json"
    file.write_text('{"total": 4}')
    result = run("dlq", "edit", entry.id[:12], "--file", str(file), "--yes")
    assert result.exit_code == 0, result.output
    assert "/total: 3 → 4" in result.output
    (message,) = app.publisher.sent
    assert json.loads(message.body)[0] == [{"total": 4}]
    line = [one for one in ledger.open(entry.id).history if one.what == "retrying"][-1]
    assert "@" in line.who
    assert line.detail.endswith("edited: /total: 3 → 4")


def test_dry_run_and_no_send_nothing(app, ledger, run):
    entry = held(ledger)
    for options in (["--dry-run", "--json"], []):
        result = run("dlq", "edit", entry.id, "--file", "-", *options, input='{"total": 4}')
        assert "/total" in result.output
    assert not app.publisher.sent
    assert ledger.open(entry.id).entry == entry


def test_an_editor_begins_with_what_may_be_seen(app, ledger, run, monkeypatch):
    entry = held(ledger)
    given = []
    monkeypatch.setattr(click, "edit", lambda text, **_o: given.append(text) or '{"total": 5}')
    assert run("dlq", "edit", entry.id, "--yes").exit_code == 0
    assert json.loads(given[0]) == {"total": 3}
    assert json.loads(app.publisher.sent[0].body)[0] == [{"total": 5}]


def test_an_editor_left_without_saving_changes_nothing(app, ledger, run, monkeypatch):
    entry = held(ledger)
    monkeypatch.setattr(click, "edit", lambda _text, **_o: None)
    assert run("dlq", "edit", entry.id).exit_code == 1
    assert not app.publisher.sent


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not JSON"), ('{"total": 3}', "nothing was changed"), ("{}", "total is missing")],
)
def test_what_cannot_be_sent_is_one_clear_sentence(app, ledger, run, text, said):
    def decode(data):
        if "total" not in data:
            raise DecodeError("total is missing")

    app.handlers["orders.sync"] = types.SimpleNamespace(decode=decode)
    result = run("dlq", "edit", held(ledger).id, "--file", "-", "--yes", input=text)
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


def test_the_data_before_the_last_edit_can_be_had_again(app, ledger, run):
    entry = held(ledger)
    refused = run("dlq", "edit", entry.id, "--original", "--file", "-", input="{}")
    assert "it was never edited" in refused.output
    run("dlq", "edit", entry.id, "--file", "-", "--yes", input='{"total": 4}')
    again = run("dlq", "edit", entry.id, "--original", "--file", "-", "--dry-run",
                input='{"total": 9}')  # fmt: skip
    assert "/total: 4 → 9" in again.output  # against what would be sent else
    unanswered(ledger, entry)
    assert run("dlq", "replay", entry.id, "--original", "--yes").exit_code == 0
    unanswered(ledger, entry)
    again = run("dlq", "edit", entry.id, "--original", "--file", "-", "--dry-run",
                input='{"total": 9}')  # fmt: skip
    assert "/total: 3 → 9" in again.output


def unanswered(ledger, entry):
    """Hold *entry*, as an analysis worker does once the answer to its replay is overdue."""
    revision = ledger.open(entry.id).entry.revision
    decided = Decided(entry_id=entry.id, revision=revision, decision=HOLD)
    assert ledger.decide([decided], by="me") == [True]


def sent(app):
    return [json.loads(message.body)[0] for message in app.publisher.sent]


def test_an_edit_that_got_no_answer_is_sent_again_unless_its_person_says_otherwise(
    app, ledger, run
):
    entry = held(ledger)
    run("dlq", "edit", entry.id, "--file", "-", "--yes", input='{"total": 4}')
    for options in ([], [], ["--original"], []):
        unanswered(ledger, entry)
        assert run("dlq", "replay", entry.id, "--yes", *options).exit_code == 0
    assert sent(app) == [[{"total": n}] for n in (4, 4, 4, 3, 3)]
    said = [one.detail for one in ledger.open(entry.id).history if one.what == "retrying"]
    assert [one.partition("edited: ")[2] for one in said] == [
        "/total: 3 → 4", "as before: /total: 3 → 4", "as before: /total: 3 → 4", "", "",
    ]  # fmt: skip


def test_an_edit_begins_with_an_edit_that_got_no_answer(app, ledger, run):
    entry = held(ledger)
    run("dlq", "edit", entry.id, "--file", "-", "--yes", input='{"total": 4}')
    unanswered(ledger, entry)
    again = run("dlq", "edit", entry.id, "--file", "-", "--yes", input='{"total": 5}')
    assert "/total: 4 → 5" in again.output
    assert sent(app)[-1] == [{"total": 5}]


def test_the_failure_of_an_edited_replay_is_what_the_next_one_sends(app, ledger, run):
    entry = held(ledger)
    run("dlq", "edit", entry.id, "--file", "-", "--yes", input='{"total": 4}')
    (message,) = app.publisher.sent
    held(ledger, replay=1, message=message)
    assert not ledger.open(entry.id).unanswered
    assert run("dlq", "replay", entry.id, "--yes").exit_code == 0
    assert sent(app)[-1] == [{"total": 4}]
    last = ledger.open(entry.id).history[-2]
    assert (last.what, last.detail) == ("retrying", "replay 2")


def test_an_edit_keeps_to_the_cap_of_replays_unless_forced(app, ledger, run):
    entry = held(ledger)
    app.settings.analysis.most_replays = 0
    arguments = ("dlq", "edit", entry.id, "--file", "-", "--yes")
    refused = run(*arguments, input='{"total": 4}')
    assert refused.exit_code == 1
    assert "--force sends it" in refused.output
    assert not app.publisher.sent
    assert run(*arguments, "--force", input='{"total": 4}').exit_code == 0
    assert len(app.publisher.sent) == 1
