"""Replay jobs over real servers: one that stops itself, and one whose engine is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.ledger import Decided, EntryFilter
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.analysis.replay.job import JobPlan, JobStatus, Selection
from angzarr.dead_letters.letter import DeadLetter, Reason, letter_id
from angzarr.events import headers as names
from angzarr.events.event import Event, Message
from angzarr.wiring.analysis_worker import open_worker
from polling import wait_until
from system.analysts import analysts

HOLD = EntryDecision(action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="a bug")
GROUP = Selection(wanted=EntryFilter(fingerprint="g1"))
KILLS = 20
#: Entries enough for that many kills.
GROUP_SIZE = 250


def letter_of(site, n, fate):
    event_id, data = f"e-{site.app.settings.prefix}-{n}", {"n": n, "fate": fate}
    headers = {
        "lang": "py", "task": "road_app.handle", "id": event_id, "root_id": event_id,
        "parent_id": None, "group": None, "shadow": None, "retries": 0, "eta": None,
        "expires": None, "timelimit": [None, None], "argsrepr": "", "kwargsrepr": "",
        "origin": "t", "ignore_result": False, names.EVENT_ID: event_id, names.EVENT_TYPE: "Thing",
    }  # fmt: skip
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    message = Message(
        body=json.dumps([[data], {}, embed]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
        queue=site.app.conf.task_default_queue,
        properties={"correlation_id": event_id, "reply_to": ""},
    )
    now = datetime.now(UTC)
    return DeadLetter(
        id=letter_id("thing", "road_app.handle", event_id, 0),
        domain="thing",
        handler="road_app.handle",
        reason=Reason.REFUSED,
        explanation="a bug",
        message=message,
        event=Event(id=event_id, type="Thing", data=data, domain="thing"),
        error_type="ValueError",
        attempts=1,
        last_attempt_at=now,
        sent_to_dlq_at=now,
        fingerprint="g1",
    )


@pytest.fixture
def job_site(make_site, tmp_path, redis_url):
    site = make_site(
        broker=redis_url, ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db", ROAD_LEASE="1"
    )
    site.forget_letters("thing")
    return site


def begin(site, count, plan, fate="fine"):
    """File a held group and begin its replay; return the store of jobs and the job's id."""
    with closing(site.app.ops.open_ledger()) as ledger:
        entries = ledger.add_failed_events([letter_of(site, n, fate) for n in range(count)])
        held = [Decided(entry_id=e.id, revision=e.revision, decision=HOLD) for e in entries]
        ledger.decide(held, by="me")
    jobs = site.app.ops.open_replay_jobs()
    return jobs, jobs.begin(GROUP, plan, by="ann").id


def kill_amid(site, pid):
    """Kill an analysis worker once something it sent was handled, 0.6 s later at most."""
    before, until = len(site.ran("handle")), time.monotonic() + 0.6
    wait_until(lambda: len(site.ran("handle")) > before or time.monotonic() > until)
    os.kill(pid, signal.SIGKILL)


def test_a_group_of_200_with_a_sick_dependency_halts_after_1(job_site):
    site = job_site
    jobs, job_id = begin(site, 200, JobPlan(), fate="give up")

    def halted():
        worker.step(wait=timedelta(milliseconds=100))
        return jobs.open_job(job_id).status is JobStatus.HALTED

    with (
        closing(jobs),
        site.worker(pool="solo"),
        open_worker(site.app.ops, ["thing"]) as worker,
    ):
        wait_until(halted, "the job to halt")
        for _ in range(5):
            worker.step(wait=timedelta(milliseconds=100))
        job = jobs.open_job(job_id)
    assert (job.sent, job.failed, job.left) == (1, 1, 199)
    assert len(site.ran("handle")) == 1


def test_20_kills_of_the_analysis_worker_lose_nothing_and_repeat_nothing(job_site):
    site = job_site
    plan = JobPlan(stages=(1, 5, 25), rate=None, in_flight=10)
    jobs, job_id = begin(site, GROUP_SIZE, plan)
    kills = 0
    with closing(jobs), site.worker(pool="threads"), analysts(site) as start:
        while kills < KILLS and jobs.open_job(job_id).status is JobStatus.RUNNING:
            kill_amid(site, start())
            kills += 1
        start()
        wait_until(lambda: jobs.open_job(job_id).status is not JobStatus.RUNNING, "the job")
        job = jobs.open_job(job_id)
    assert kills == KILLS
    assert (job.status, job.handled, job.sent) == (JobStatus.DONE, GROUP_SIZE, GROUP_SIZE)
    assert Counter(line["n"] for line in site.ran("handle")) == dict.fromkeys(range(GROUP_SIZE), 1)
    assert {line["replay"] for line in site.ran("handle")} == {1}
    with closing(site.app.ops.open_ledger()) as ledger:
        assert ledger.get_failure_stats().by_status == {Status.RESOLVED: GROUP_SIZE}
