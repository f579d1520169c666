"""angzarr dlq edit: other data for one event, sent or proposed to a second person."""

from __future__ import annotations

import json
import types

import click
import pytest
from tests.contracts.ledger import HOLD, resolve
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.ledger import Decided
from angzarr.cli.dlq import jobs as jobs_command
from angzarr.errors import DecodeError
from angzarr.wiring.analysis_worker import open_worker


def test_data_from_a_file_is_shown_as_a_change_and_sent(app, ledger, works, tmp_path):
    entry = held(ledger)
    file = tmp_path / "new.json"
    file.write_text('{"total": 4}')
    assert "/total: 3 → 4" in works("dlq", "edit", entry.id[:12], "--file", str(file), "--yes")
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
def test_what_cannot_be_sent_is_one_clear_sentence(app, ledger, fails, text, said):
    def decode(data):
        if "total" not in data:
            raise DecodeError("total is missing")

    app.handlers["orders.sync"] = types.SimpleNamespace(decode=decode)
    assert said in fails("dlq", "edit", held(ledger).id, "--file", "-", "--yes", input=text)


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


def test_an_edit_keeps_to_the_cap_of_replays_unless_forced(app, ledger, run, fails):
    entry = held(ledger)
    app.settings.analysis.most_replays = 0
    arguments = ("dlq", "edit", entry.id, "--file", "-", "--yes")
    assert "--force sends it" in fails(*arguments, input='{"total": 4}')
    assert not app.publisher.sent
    assert run(*arguments, "--force", input='{"total": 4}').exit_code == 0
    assert len(app.publisher.sent) == 1


# -- approval ------------------------------------------------------------------------------------


@pytest.fixture
def careful(app):
    app.settings.analysis.approvals.edits = True
    return app


@pytest.fixture
def propose(careful, run):
    def propose_(entry, *options, data='{"total": 4}'):
        return run("dlq", "edit", entry.id, "--file", "-", "--yes", *options, input=data)

    return propose_


@pytest.fixture
def job_of(run):
    return lambda: json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"][0]


def marked(run, job):
    """Return the mark of the edit that *job* carries, as a program reads it."""
    return json.loads(run("dlq", "jobs", "show", job, "--json").output)["edit_review"]["mark"]


@pytest.fixture
def as_bob(monkeypatch):
    monkeypatch.setattr(jobs_command, "person", lambda: "bob@desk")


def test_an_edit_is_proposed_and_sent_once_somebody_else_approved_it(
    app, ledger, run, propose, job_of, as_bob
):
    entry = held(ledger)
    result = propose(entry, "--note", "the total was wrong")
    assert result.exit_code == 0, result.output
    job = job_of()
    assert (job["status"], job["total"], job["note"]) == ("proposed", 1, "the total was wrong")
    assert f"angzarr dlq jobs approve {job['id']}" in result.output
    with open_worker(app, ["order"]) as worker:
        worker.step()
        assert not app.publisher.sent
        shown = run("dlq", "jobs", "show", job["id"]).output
        assert "/total: 3 → 4" in shown
        assert job["edit"] in shown.replace("\n", "")
        mark = marked(run, job["id"])
        assert f"approve {job['id']} --edit {mark}" in shown.replace("\n", "")
        assert run("dlq", "jobs", "approve", job["id"], "--yes", "--edit", mark).exit_code == 0
        worker.step()
    (message,) = app.publisher.sent
    assert json.loads(message.body)[0] == [{"total": 4}]


def test_no_program_approves_an_edit_that_nobody_says_he_has_read(
    ledger, run, fails, propose, job_of, as_bob
):
    propose(held(ledger))
    job = job_of()["id"]
    for options, said in ((), "say which one with --edit"), (("--edit", "0" * 16), "another one"):
        assert said in fails("dlq", "jobs", "approve", job, "--yes", *options)
    assert job_of()["status"] == "proposed"
    assert run("dlq", "jobs", "approve", job, input="y\n").exit_code == 0


def test_nobody_approves_his_own_edit(ledger, run, fails, propose, job_of):
    propose(held(ledger))
    job = job_of()["id"]
    output = fails("dlq", "jobs", "approve", job, "--yes", "--edit", marked(run, job))
    assert "not by the person who proposed it" in output


def test_an_edit_of_an_entry_that_was_replayed_meanwhile_cannot_be_approved(
    ledger, run, fails, propose, job_of, as_bob
):
    entry = held(ledger)
    propose(entry)
    assert run("dlq", "replay", entry.id, "--yes").exit_code == 0
    output = fails("dlq", "jobs", "approve", job_of()["id"], "--yes")
    assert "the entry was replayed since it was edited: cancel the job" in output
    assert job_of()["status"] == "proposed"


def test_one_edit_of_an_entry_waits_at_a_time_and_a_cancelled_one_makes_room(
    ledger, run, propose, job_of
):
    entry = held(ledger)
    propose(entry)
    first = job_of()["id"]
    result = propose(entry, data='{"total": 5}')
    assert result.exit_code == 1
    assert f"in job {first}" in result.output
    assert run("dlq", "jobs", "cancel", first, "--yes").exit_code == 0
    assert propose(entry, data='{"total": 5}').exit_code == 0


def test_a_program_reads_the_proposal_and_its_changes(ledger, run, propose, job_of):
    result = propose(held(ledger), "--json")
    told = json.loads(result.output)
    change = {"pointer": "/total", "before": "3", "after": "4"}
    assert (told["changes"], told["job"]["status"]) == ([change], "proposed")
    shown = json.loads(run("dlq", "jobs", "show", told["job"]["id"], "--json").output)
    assert shown["edit_review"]["changes"] == [change]
    assert shown["edit_review"]["problem"] is None


def test_who_is_asked_sees_the_changes_also_where_a_program_reads_the_answer(
    careful, ledger, run, tmp_path
):
    file = tmp_path / "new.json"
    file.write_text('{"total": 4}')
    result = run("dlq", "edit", held(ledger).id, "--file", str(file), "--json", input="y\n")
    assert "/total: 3 → 4" in result.stderr
    assert json.loads(result.stdout)["job"]["status"] == "proposed"


def test_a_dry_run_proposes_nothing(ledger, run, propose):
    assert "/total" in propose(held(ledger), "--dry-run").output
    assert json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"] == []


def test_nobody_is_past_the_second_person_by_force(app, ledger, propose):
    app.settings.analysis.most_replays = 0
    entry = held(ledger)
    assert "keeps to the cap" in propose(entry, "--force").output
    assert "it was replayed 0 times" in propose(entry).output
    assert not app.publisher.sent


def test_why_an_edit_was_made_stands_in_the_history(ledger, run):
    entry = held(ledger)
    how = ("--file", "-", "--note", "the total was wrong", "--yes")
    assert run("dlq", "edit", entry.id, *how, input='{"total": 4}').exit_code == 0
    told = [line.detail for line in ledger.open(entry.id).history]
    assert any("the total was wrong; /total: 3 → 4" in one for one in told), told


def test_nobody_edits_what_cannot_be_replayed(ledger, run):
    entry = held(ledger)
    resolve(ledger, entry.id)
    result = run("dlq", "edit", entry.id)  # without a file this would open an editor
    assert (result.exit_code, "the entry is resolved" in result.output) == (1, True)


def test_a_redirect_to_nobody_is_refused_before_a_job_begins(ledger, run, fails):
    for event in ("e1", "e2"):
        held(ledger, event)
    for option, said in (("--to-handler", "no handler is registered"), ("--to-queue", "no queue")):
        assert said in fails("dlq", "replay", "--status", "held", option, "nobody", "--yes", code=2)
    assert json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"] == []


def test_nobody_is_a_second_person_by_another_name_in_his_environment(
    ledger, run, propose, job_of, monkeypatch
):
    propose(held(ledger))
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "bob")
    job = job_of()["id"]
    result = run("dlq", "jobs", "approve", job, "--yes", "--edit", marked(run, job))
    assert "not by the person who proposed it" in result.output
    assert job_of()["status"] == "proposed"


def test_who_proposes_and_who_approves_see_the_whole_of_a_long_edit(
    ledger, run, propose, job_of, as_bob
):
    data = json.dumps({"total": 3, "note": "x" * 900 + " pay 9999"})
    assert "pay 9999" in propose(held(ledger), data=data).output
    job = job_of()["id"]
    assert "pay 9999" in run("dlq", "jobs", "show", job).output.replace("\n", "")
    asked = run("dlq", "jobs", "approve", job, input="n\n")
    assert "pay 9999" in asked.stderr.replace("\n", "")
    assert job_of()["status"] == "proposed"
    told = json.loads(run("dlq", "jobs", "show", job, "--json").output)
    assert told["edit_review"]["whole"]["after"] == json.loads(data)


def test_one_entry_that_is_sent_elsewhere_waits_for_a_second_person(careful, ledger, run, job_of):
    entry = held(ledger)
    where = ("--to-queue", "spare", "--yes")
    for more in ("--now", "--force"):
        refused = run("dlq", "replay", entry.id, *where, more)
        assert (refused.exit_code, "analysis.approvals.edits" in refused.output) == (2, True)
    assert run("dlq", "replay", entry.id, *where).exit_code == 0
    assert (job_of()["status"], job_of()["plan"]["to_queue"]) == ("proposed", "spare")
    assert not careful.publisher.sent


def test_an_edit_is_sent_elsewhere(app, ledger, run, propose, job_of):
    assert propose(held(ledger), "--to-queue", "spare").exit_code == 0
    assert job_of()["plan"]["to_queue"] == "spare"
    refused = propose(held(ledger, "e2"), "--to-handler", "nobody")
    assert (refused.exit_code, "no handler is registered" in refused.output) == (2, True)
    app.settings.analysis.approvals.edits = False
    assert propose(held(ledger, "e3"), "--to-queue", "spare").exit_code == 0
    assert [message.queue for message in app.publisher.sent] == ["spare"]
