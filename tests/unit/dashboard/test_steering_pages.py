"""A replay job is steered from a page as it was seen there, or the page asks again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.replay.job import JobPlan, JobStatus, Selection
from angzarr.dashboard.pages.jobs import stand
from angzarr.settings.dashboard import Role
from dashboard_caller import browser, hidden
from hand_clock import START


@pytest.fixture
def begin(world):
    """Begin a job over three entries; one that waits for approval if it says so."""

    def begin(plan=None, *, by="ada", approval_over=None, **wanted):
        (entry, *_) = world.file(3)
        chosen = Selection(
            wanted=EntryFilter(fingerprint=entry.fingerprint, **wanted),
            status=Status.FAILED,
            limit=2,
        )
        return world.jobs.begin(
            chosen, plan or JobPlan(), by=by, job_id="j1", approval_over=approval_over
        )

    return begin


def test_a_job_is_paused_and_resumed_from_its_page_and_ended_after_a_question(world, person, begin):
    begin()
    for how, status in (("pause", "paused"), ("resume", "running")):
        assert person.submit("/jobs/j1", f"/jobs/j1/{how}").status_code == 303
        assert world.jobs.all["j1"].status == status
    page = person.get("/jobs/j1").text
    assert '<a class="button" href="/jobs/j1/cancel">' in page
    assert "<button>Cancel" not in page
    assert "it cannot be resumed" in person.get("/jobs/j1/cancel").text
    assert world.jobs.all["j1"].status == "running"
    assert person.submit("/jobs/j1/cancel", "/jobs/j1/cancel").status_code == 303
    assert world.jobs.all["j1"].status == "cancelled"


def test_a_job_that_only_went_on_is_still_steered(world, person, begin):
    form = hidden(person.get(f"/jobs/{begin().id}/cancel").text)
    world.jobs.take("e", lease=timedelta(minutes=1), limit=1)
    world.jobs.begin_next("j1", "e", limit=1, most_replays=9)
    assert world.jobs.all["j1"].revision > 1
    assert person.post("/jobs/j1/cancel", data=form).status_code == 303


def test_a_job_that_goes_on_while_it_is_steered_is_steered_all_the_same(
    world, person, begin, monkeypatch
):
    form = hidden(person.get(f"/jobs/{begin().id}/cancel").text)
    look, looks = world.jobs.open_job, []

    def goes_on(job_id):
        job = look(job_id)
        looks.append(job)
        if len(looks) == 1:
            world.jobs.put(job, revision=job.revision + 1)
        return job

    monkeypatch.setattr(world.jobs, "open_job", goes_on)
    assert person.post("/jobs/j1/cancel", data=form).status_code == 303
    assert look("j1").status is JobStatus.CANCELLED


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_a_job_that_stands_otherwise_by_now_is_asked_about_again(world, person, begin, how):
    job = begin()
    form = hidden(person.get("/jobs/j1").text)
    world.jobs.put(job, status=JobStatus.HALTED, said="halted: the canary failed")
    answer = person.post(f"/jobs/j1/{how}", data=form)
    assert answer.status_code == 412
    assert "Nothing was done" in answer.text
    assert "the canary failed" in answer.text
    assert world.jobs.all["j1"].status is JobStatus.HALTED
    assert ("disabled" in answer.text) == (how == "pause")


def test_an_approver_is_shown_all_that_he_approves(world, begin):
    plan = JobPlan(stages=(2, 4), rate=None, in_flight=7, halt_share=0.05,
                   to_queue="spare", to_handler="orders.other")  # fmt: skip
    begin(plan, approval_over=1, error_code="TIMEOUT", until=START + timedelta(hours=1))
    page = browser(world, Role.APPROVER).get("/jobs/j1/approve").text
    for told in (
        "the replay of 2 entries?", "by ada", "<dt>Error code</dt><dd>TIMEOUT</dd>",
        "<dt>Until</dt><dd>2026-01-01 13:00:00 UTC</dd>", "<dt>Status</dt><dd>failed</dd>",
        "<dt>At most</dt><dd>2,", "<dt>Found</dt><dd>2 ",
        "<dt>To handler</dt><dd>orders.other</dd>", "<dt>To queue</dt><dd>spare</dd>",
        "<dt>Stages</dt><dd>2, 4, then all</dd>",
        "<dt>Rate</dt><dd>no limit</dd>", "<dt>Under way</dt><dd>7 ", "more than 5 % fail",
        "<h2>Its entries</h2>",
    ):  # fmt: skip
        assert told in page, told
    for item in world.jobs.items("j1"):
        assert f'href="/entries/{item.entry_id}"' in page


def test_a_proposed_job_is_approved_by_another_person(world, begin, person):
    begin(by="operator@test", approval_over=1)
    approver = browser(world, Role.APPROVER)
    assert "Approve…" not in person.get("/jobs/j1").text
    assert "anybody with the role approver, except operator@test" in person.get("/jobs/j1").text
    assert person.get("/jobs/j1/approve").status_code == 403
    assert person.submit("/jobs/j1/cancel", "/jobs/j1/approve").status_code == 403
    assert "Approve…" in approver.get("/jobs/j1").text
    assert approver.submit("/jobs/j1/approve", "/jobs/j1/approve").status_code == 303
    job = world.jobs.all["j1"]
    assert (job.status, job.approved_by) == (JobStatus.RUNNING, "approver@test")


def test_nobody_is_asked_to_approve_his_own_proposal(world, begin):
    job = begin(by="approver@elsewhere", approval_over=1)
    approver = browser(world, Role.APPROVER)
    assert approver.get("/jobs/j1/approve").status_code == 409
    form = hidden(approver.get("/jobs/j1/cancel").text) | {"seen": stand(job, "approve")}
    assert approver.post("/jobs/j1/approve", data=form).status_code == 409
    assert world.jobs.all["j1"].status is JobStatus.PROPOSED


def test_an_approval_is_of_the_job_that_was_seen_to_the_letter(world, begin):
    job = begin(approval_over=1)
    approver = browser(world, Role.APPROVER)
    form = hidden(approver.get("/jobs/j1/approve").text)
    world.jobs.put(job, revision=job.revision + 1)
    assert approver.post("/jobs/j1/approve", data=form).status_code == 412
    assert world.jobs.all["j1"].status is JobStatus.PROPOSED


@pytest.mark.parametrize("how", ["approve", "resume"])
def test_what_cannot_be_done_is_not_asked(world, begin, how):
    begin()
    assert browser(world, Role.APPROVER).get(f"/jobs/j1/{how}").status_code == 409
