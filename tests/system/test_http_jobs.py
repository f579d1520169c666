"""Replays begun over HTTP and carried out by real analysis workers and a real worker."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.replay.job import JobPlan, JobStatus
from angzarr.cli.dashboard import open_services
from angzarr.dashboard.access import hash_of
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.server import bind, server_of
from angzarr.dashboard.site import build_site
from angzarr.settings.dashboard import DashboardSettings, DashboardToken, Role
from polling import wait_until
from system.analysts import analysts
from system.test_replay_jobs import GROUP, HOLD, letter_of

COUNT = 5
PEOPLE = DashboardSettings(
    tokens=tuple(
        DashboardToken(name=name, role=role, sha256=hash_of(f"{name}-token"))
        for name, role in (("ann", Role.OPERATOR), ("bob", Role.APPROVER))
    )
)


@pytest.fixture
def site(request, make_site, tmp_path, redis_url):
    more = getattr(request, "param", {})
    ledger = {"ANGZARR_LEDGER": f"sqlite:///{tmp_path}/ledger.db", **more}
    site = make_site(broker=redis_url, ROAD_LEASE="1", ROAD_ASYNC="1", **ledger)
    site.forget_letters("thing")
    return site


@pytest.fixture
def held(site):
    """Ids of held entries, whose cause is gone."""
    with closing(site.app.ops.open_ledger()) as ledger:
        entries = ledger.add_failed_events([letter_of(site, n, "fine") for n in range(COUNT)])
        held = [Decided(entry_id=e.id, revision=e.revision, decision=HOLD) for e in entries]
        ledger.decide(held, by="me")
        return [entry.id for entry in entries]


@contextmanager
def dashboard(app, settings=None):
    """Serve *app*'s dashboard; give what asks its API."""
    with ExitStack() as doors:
        site = build_site(open_services(app.ops, doors), settings or DashboardSettings())
        listener = doors.enter_context(bind("127.0.0.1", 0))
        server = server_of(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started, "the dashboard to serve")
        try:
            key = {"X-API-Key": site.token} if site.token else {}
            yield partial(ask, listener.getsockname()[1], **key)
        finally:
            server.should_exit = True
            thread.join(60)


def ask(port, path, body=None, **headers):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{PREFIX}{path}",
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": "application/json", "Idempotency-Key": "k", **headers},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
        return json.load(answer)


def statuses(site):
    with closing(site.app.ops.open_ledger()) as ledger:
        return ledger.get_failure_stats().by_status


def test_a_job_begun_over_http_is_carried_out_and_followed_there(site, held):
    with (
        site.worker(pool="solo"),
        analysts(site) as start,
        dashboard(site.app) as api,
    ):
        start()
        body = {"filter": {"fingerprint": "g1"}, "plan": {"stages": [1]}, "note": "well again"}
        job = api("/jobs", body)
        assert api("/jobs", body)["id"] == job["id"]
        told = wait_until(lambda: over(api(f"/jobs/{job['id']}")), "the job")
        assert (told["status"], told["total"], told["handled"]) == ("done", COUNT, COUNT)
        assert [line["what"] for line in told["history"]] == [
            "running", "stage 2", "done"
        ]  # fmt: skip
        for one in held:
            assert api(f"/entries/{one}")["resolved_by"] == "replay 1 (handled)"
    assert Counter(line["n"] for line in site.ran("handle")) == dict.fromkeys(range(COUNT), 1)
    assert statuses(site) == {Status.RESOLVED: COUNT}


def over(job):
    return job if job["status"] not in {"running", "proposed"} else None


@pytest.mark.parametrize("site", [{"ANGZARR_ANALYSIS__APPROVALS__EDITS": "yes"}], indirect=True)
def test_an_edit_of_one_person_is_sent_once_another_who_saw_it_approves_it(site, held):
    first, *others = held
    with (
        site.worker(pool="solo"),
        analysts(site) as start,
        dashboard(site.app, PEOPLE) as api,
    ):
        start()
        ann, bob = ({"X-API-Key": token} for token in ("ann-token", "bob-token"))
        edit = {"data": {"n": 77, "fate": "fine"}, "note": "the number was wrong"}
        job = api(f"/entries/{first}/edits", edit, **ann)
        assert job["status"] == "proposed"
        where, saw = f"/jobs/{job['id']}", {"If-Match": f'"{job["revision"]}"'}
        with pytest.raises(urllib.error.HTTPError) as unseen:
            api(f"{where}/approve", {}, **bob, **saw)
        assert unseen.value.code == 428
        unseen.value.close()
        told = api(where, **bob)
        shown = told["edit_review"]
        assert [one["pointer"] for one in shown["changes"]] == ["/n"]
        saw = {"If-Match": f'"{told["revision"]}-{shown["mark"]}"', "Idempotency-Key": "k2"}
        api(f"{where}/approve", {}, **bob, **saw)
        told = wait_until(lambda: over(api(where, **bob)), "the job")
        assert (told["status"], told["handled"]) == ("done", 1)
        entry = api(f"/entries/{first}", **bob)
        assert (entry["status"], entry["resolved_by"]) == ("resolved", "replay 1 (handled)")
        (line,) = [one for one in entry["history"] if one["what"] == "retrying"]
        assert line["who"] == f"job {job['id']} (ann, approved by bob)"
        assert line["detail"].startswith("replay 1 edited: /n: ")
        assert api(f"/entries/{others[0]}", **bob)["status"] == "held"
    assert [line["n"] for line in site.ran("handle")] == [77]
    with closing(site.app.ops.open_ledger()) as ledger:
        detail = ledger.open(first)
    assert detail.before.event.data == {"n": 0, "fate": "fine"}
    assert detail.order.letter.event.data == edit["data"]


def test_a_job_that_sends_to_another_handler_resolves_the_entries(site, held):
    plan = JobPlan(stages=(1,), to_handler="road_app.handle_async")
    with (
        site.worker(pool="solo"),
        analysts(site) as start,
        closing(site.app.ops.open_replay_jobs()) as jobs,
    ):
        start()
        job = jobs.begin(GROUP, plan, by="ann")
        wait_until(lambda: jobs.open_job(job.id).status is not JobStatus.RUNNING, "the job")
        done = jobs.open_job(job.id)
    assert (done.status, done.handled, done.said) == (JobStatus.DONE, COUNT, "")
    ran = Counter(line["n"] for line in site.ran("handle_async"))
    assert ran == dict.fromkeys(range(COUNT), 1)
    assert site.ran("handle") == []
    assert statuses(site) == {Status.RESOLVED: COUNT}
