"""angzarr dlq replay and jobs: many entries are replayed in a job."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import click
import pytest
from rich.console import Console
from tests.contracts.dead_letters import nested_letter
from tests.contracts.ledger import message_of
from tests.hand_clock import START
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob, Selection
from angzarr.cli.dlq import job_view
from angzarr.cli.dlq import replay as entry_replay
from angzarr.cli.dlq.replay import _check
from angzarr.cli.terminal import moment
from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.events import headers as names
from angzarr.wiring.analysis_worker import open_worker


def outcome_of(message, outcome="handled"):
    return ReplayOutcome(
        letter_id=message.headers[names.LETTER_ID], replay=message.headers[names.REPLAY],
        outcome=outcome, handler="orders.sync", event_id="e",
    )  # fmt: skip


@pytest.fixture
def jobs(app):
    store = app.open_replay_jobs()
    yield store
    store.close()


@pytest.fixture
def at_work(app, monkeypatch):
    """Let an analysis worker do a round whenever somebody who follows a job would sleep."""
    app.publisher.on_publish = lambda message: app.outcomes.waiting.append(outcome_of(message))
    with open_worker(app, ["order"]) as worker:
        monkeypatch.setattr(
            job_view, "follow", lambda look: follow(look, lambda _seconds: worker.step())
        )
        yield worker


follow = job_view.follow


def test_the_analysis_worker_reads_letters_within_the_bounds_that_are_set(app):
    letter = nested_letter(LETTER.depth + 1)
    app.queue.put_raw([RawLetter(domain="order", raw=letter, content_type=JSON_CONTENT_TYPE)])
    with open_worker(app, ["order"]) as worker, closing(app.open_ledger()) as ledger:
        worker.step()
        (entry,) = ledger.get_failed_events(status=None).entries
        failure = ledger.open(entry.id).failure
    assert isinstance(failure, DeadLetter)
    assert failure.explanation == "beyond the bounds"


def three(ledger):
    return [held(ledger, f"e{number}") for number in range(3)]


def begun(run, *options):
    result = run("dlq", "replay", "--status", "held", "--yes", "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_filter_becomes_a_job_that_the_worker_carries_out(app, ledger, run, works, at_work):
    three(ledger)
    output = works(
        "dlq", "replay", "--status", "held", "--yes", "--watch", "--note", "bank is back"
    )
    assert "3 handled; done" in output
    assert "3 handled" in output
    assert ledger.get_failure_stats().by_status == {Status.RESOLVED: 3}
    (listed,) = json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"]
    assert (listed["status"], listed["handled"], listed["note"]) == ("done", 3, "bank is back")


def test_options_make_the_plan(ledger, run, jobs):
    three(ledger)
    options = ["--stages", "2,4", "--rate", "0", "--halt", "5%", "--in-flight", "7"]
    job = jobs.open_job(begun(run, *options)["id"])
    assert job.plan == JobPlan(stages=(2, 4), rate=None, in_flight=7, halt_share=0.05)
    assert jobs.open_job(job.id).created_by


@pytest.mark.parametrize(
    "options",
    [["--stages", "x"], ["--halt", "much"], ["--stages", "5,1"], ["--rate", "-1"]],
)
def test_options_that_make_no_plan_are_one_clear_sentence(ledger, run, jobs, options):
    three(ledger)
    result = run("dlq", "replay", "--status", "held", "--yes", *options)
    assert result.exit_code in {1, 2}
    assert "Traceback" not in result.output
    assert jobs.get_jobs().jobs == ()


def test_a_job_and_an_entry_can_be_sent_elsewhere(app, ledger, run, jobs, at_work):
    three(ledger)
    refused = run("dlq", "replay", "--status", "held", "--to-queue", "theirs", "--dry-run")
    assert "the app knows no queue 'theirs'" in refused.output
    result = run("dlq", "replay", "--status", "held", "--yes", "--watch", "--to-queue", "spare")
    assert result.exit_code == 0, result.output
    assert {message.queue for message in app.publisher.sent} == {"spare"}
    (job,) = jobs.get_jobs().jobs
    assert job.plan.to_queue == "spare"
    assert "to queue spare" in run("dlq", "jobs", "show", job.id).output
    one = held(ledger, "one")
    run("dlq", "replay", one.id, "--yes", "--to-queue", "spare")
    assert app.publisher.sent[-1].queue == "spare"


def test_several_entries_are_a_job_and_one_is_sent_at_once(app, ledger, run, jobs):
    entries = three(ledger)
    run("dlq", "replay", entries[0].id, "--yes")
    assert len(app.publisher.sent) == 1
    run("dlq", "replay", entries[1].id, entries[2].id, "--yes")
    assert len(app.publisher.sent) == 1
    (job,) = jobs.get_jobs().jobs
    assert job.total == 2


def test_it_asks_how_many_first(ledger, run, jobs):
    three(ledger)
    result = run("dlq", "replay", "--status", "held", input="n\n")
    assert "Replay 3 entries in a job?" in result.output
    assert result.exit_code == 1
    assert jobs.get_jobs().jobs == ()


def test_nothing_to_replay_is_no_failure(app, works):
    assert "no entries to replay" in works("dlq", "replay", "--status", "held")


def test_dry_run_counts_what_would_be_sent_and_refused_and_why(app, ledger, run, jobs):
    three(ledger)
    held(ledger, "odd", message=message_of("odd", task="os.system"))
    told = json.loads(run("dlq", "replay", "--status", "held", "--dry-run", "--json").output)
    assert (told["looked_at"], told["would_send"]) == (4, 3)
    assert told["refused"] == {"no handler is registered as 'os.system'": 1}
    output = run("dlq", "replay", "--status", "held", "--dry-run").output
    assert "3 would be replayed, 1 refused" in output
    assert jobs.get_jobs().jobs == ()
    assert not app.publisher.sent


def test_a_halted_job_ends_the_watch_with_3_and_can_be_resumed(
    app, ledger, run, fails, jobs, at_work
):
    three(ledger)
    app.publisher.on_publish = None
    app.settings.analysis.answer_deadline = timedelta(0)
    with open_worker(app, ["order"]) as worker:
        job_id = begun(run)["id"]
        for _ in range(3):
            worker.step()
        assert "the canary failed" in fails("dlq", "jobs", "watch", job_id, code=3)
        assert run("dlq", "jobs", "resume", job_id).exit_code == 0
    assert jobs.open_job(job_id).status is JobStatus.RUNNING


def test_a_person_pauses_resumes_and_cancels(ledger, run, fails, jobs):
    three(ledger)
    job_id = begun(run)["id"]
    assert json.loads(run("dlq", "jobs", "pause", job_id, "--json").output)["status"] == "paused"
    assert "is paused: only a running job can be paused" in fails("dlq", "jobs", "pause", job_id)
    assert "is running" in run("dlq", "jobs", "resume", job_id).output
    asked = run("dlq", "jobs", "cancel", job_id, input="n\n")
    assert "Cancel this job of 3 entries?" in asked.output
    assert (asked.exit_code, jobs.open_job(job_id).status) == (1, JobStatus.RUNNING)
    assert "is cancelled" in run("dlq", "jobs", "cancel", job_id, "--yes").output
    assert run("dlq", "jobs", "watch", job_id).exit_code == 4
    shown = run("dlq", "jobs", "show", job_id).output
    assert "cancelled by" in shown
    assert "stages 1, 5, 25, all; 50 a second" in shown


def test_a_large_job_is_proposed_and_not_approved_by_its_author(app, ledger, run, fails, jobs):
    app.settings.analysis.approvals.jobs_over = 2
    three(ledger)
    job = begun(run)
    assert job["status"] == "proposed"
    output = fails("dlq", "jobs", "approve", job["id"], "--yes")
    assert "not by the person who proposed it" in output
    assert run("dlq", "jobs", "watch", job["id"]).exit_code == 5


@pytest.fixture
def proposed(ledger, jobs):
    """A job that somebody else proposed."""
    three(ledger)
    wanted = Selection(wanted=EntryFilter(domain="order", until=datetime(2030, 1, 1, tzinfo=UTC)))
    plan = JobPlan(stages=(2,), to_queue="spare")
    return jobs.begin(wanted, plan, by="somebody else", note="bank", approval_over=1)


def test_whoever_approves_is_shown_what_and_asked(run, jobs, proposed):
    asked = run("dlq", "jobs", "approve", proposed.id, input="n\n")
    for told in (
        f"domain order, until {moment(datetime(2030, 1, 1, tzinfo=UTC))}", "stages 2, all", "bank",
        "to queue spare", "by somebody else", "Approve this job of 3 entries?",
    ):  # fmt: skip
        assert told in asked.output, told
    assert asked.exit_code == 1
    assert jobs.open_job(proposed.id).status is JobStatus.PROPOSED
    assert "is approved" in run("dlq", "jobs", "approve", proposed.id, input="y\n").output
    assert jobs.open_job(proposed.id).status is JobStatus.RUNNING


def test_a_job_that_changed_while_its_approver_thought_is_not_approved(
    fails, jobs, proposed, monkeypatch
):
    monkeypatch.setattr("click.confirm", lambda *_, **__: jobs.cancel(proposed.id, by="ann"))
    assert "changed meanwhile: look at it again" in fails("dlq", "jobs", "approve", proposed.id)


def test_a_job_that_somebody_had_in_hand_meanwhile_is_not_cancelled(run, ledger, jobs, monkeypatch):
    three(ledger)
    job_id = begun(run)["id"]
    jobs.pause(job_id, by="ann")

    def think(*_, **__):
        jobs.resume(job_id, by="bob")
        jobs.pause(job_id, by="bob")

    monkeypatch.setattr("click.confirm", think)
    assert "changed meanwhile" in run("dlq", "jobs", "cancel", job_id).output
    assert jobs.open_job(job_id).status is JobStatus.PAUSED


def test_show_tells_what_was_refused_and_why(app, ledger, run, at_work):
    held(ledger, "e1")
    held(ledger, "odd", message=message_of("odd", task="os.system"))
    result = run("dlq", "replay", "--status", "held", "--yes", "--watch")
    assert result.exit_code == 1
    (job,) = json.loads(run("dlq", "jobs", "list", "--json").output)["jobs"]
    shown = json.loads(run("dlq", "jobs", "show", job["id"], "--json").output)
    (refused,) = shown["refused_entries"]
    assert "os.system" in refused["reason"]
    assert "os.system" in run("dlq", "jobs", "show", job["id"]).output


def test_unknown_jobs_and_cursors_are_one_clear_sentence(app, run):
    for verb in ("show", "watch", "pause", "approve"):
        assert "there is no replay job 'nope'" in run("dlq", "jobs", verb, "nope").output
    assert run("dlq", "jobs", "list", "--after", "nope").exit_code == 2
    assert "no replay jobs" in run("dlq", "jobs", "list").output


def test_one_entry_passes_the_cap_by_force(app, ledger, run, fails):
    entry = held(ledger)
    app.settings.analysis.most_replays = 0
    assert "--force" in fails("dlq", "replay", entry.id, "--yes")
    assert run("dlq", "replay", entry.id, "--yes", "--force").exit_code == 0
    assert run("dlq", "replay", "--status", "held", "--force").exit_code == 2


def test_a_terminal_sees_a_bar(monkeypatch, capsys):
    job = ReplayJob(
        id="j", selection=Selection(), plan=JobPlan(), created_by="ann", created_at=START,
        status=JobStatus.DONE, total=4, sent=4, handled=3, failed=1, said="[red]evil[/red]",
    )  # fmt: skip
    monkeypatch.setattr(
        job_view, "Console", lambda **_o: Console(force_terminal=True, width=100, highlight=False)
    )
    assert follow(lambda: job) is job
    shown = capsys.readouterr().out
    assert "4/4" in shown
    assert "[red]evil[/red]" in shown
    assert job_view.exit_code(job) == 1


def test_what_is_sent_at_once_needs_the_second_person_that_a_job_would(app, ledger, run, fails):
    three(ledger)
    app.settings.analysis.approvals.jobs_over = 2
    output = fails("dlq", "replay", "--status", "held", "--now", "--yes", code=2)
    assert "leave --now out, and a second person approves the job" in output
    assert not app.publisher.sent
    assert run("dlq", "replay", "--status", "held", "--now", "--yes", "--limit", "2").exit_code == 0
    assert len(app.publisher.sent) == 2


@pytest.mark.parametrize("limit", [[], ["--limit", "3"]])
def test_only_so_many_are_sent_at_once(app, ledger, fails, monkeypatch, limit):
    three(ledger)
    monkeypatch.setattr(entry_replay, "_MOST_NOW", 2)
    output = fails("dlq", "replay", "--status", "held", "--now", "--yes", *limit, code=2)
    assert "--now sends 2 entries at most" in output
    assert not app.publisher.sent


def test_a_job_is_named_by_how_its_id_begins(run, jobs, ledger):
    for event in ("e1", "e2", "e3"):
        held(ledger, event)
    chosen = [entry.id for entry in ledger.get_failed_events(status=None).entries]
    for entry_id, job_id in zip(chosen, ("a1b2c3d4", "a1b2c3ff", "77777777"), strict=True):
        jobs.begin(Selection(entry_ids=(entry_id,)), JobPlan(), by="ann", job_id=job_id)
    assert run("dlq", "jobs", "pause", "777777").exit_code == 0
    assert "paused" in run("dlq", "jobs", "show", "777777").output
    for beginning, said in (("a1b2c3", "several jobs begin"), ("77", "there is no replay job")):
        result = run("dlq", "jobs", "show", beginning)
        assert result.exit_code != 0
        assert said in result.output
    assert run("dlq", "jobs", "cancel", "a1b2c3f", "--yes").exit_code == 0


def test_what_would_need_a_second_person_as_a_job_is_not_sent_at_once():
    with pytest.raises(click.UsageError, match="leave --now out"):
        _check(3, 2)


@pytest.mark.parametrize(("count", "over"), [(3, None), (2, 2), (1, 0), (0, 0)])
def test_what_needs_nobody_is_sent(count, over):
    _check(count, over)
