"""A secret of an event, from a real worker through a real queue and the ledger to its replay."""

from __future__ import annotations

import base64
import json
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.worker.due_entries import DueEntries
from angzarr.dead_letters.codec import decode
from angzarr.wiring.analysis_worker import open_worker
from polling import wait_until

SECRET = 'hunter two\'s "pass"'
KEYS = {
    "redact": ["**.filler"],
    "redact_text": [r"refused: .*"],
    "encryption_keys": {"k1": base64.b64encode(b"k" * 32).decode()},
    "signing_keys": {"s1": "a secret of some length"},
}


@pytest.fixture
def guarded_site(make_site, amqp_url, tmp_path):
    letters = {"backend": "amqp", "amqp_url": amqp_url, **KEYS}
    site = make_site(ROAD_DLQ=json.dumps(letters), ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db")
    site.forget_letters("thing", "unknown")
    return site


def raw_letter(site):
    """Look at the next letter of *site* as it lies in its queue."""
    with closing(site.app.ops.open_dead_letter_queue()) as queue:
        receipts = wait_until(
            lambda: queue.receive(["thing"], limit=1, wait=timedelta(seconds=1)), "a letter"
        )
        return receipts[0].raw


@contextmanager
def analysis_of(site):
    with (
        closing(site.app.ops.open_ledger()) as ledger,
        open_worker(site.app.ops, ["thing"]) as worker,
    ):

        def step(status):
            worker.step(wait=timedelta(milliseconds=100))
            (entry,) = ledger.get_failed_events(status=None).entries or [None]
            return entry if entry is not None and entry.status is status else None

        waking = next(duty for duty in worker.duties if isinstance(duty, DueEntries))
        yield waking, lambda status: wait_until(lambda: step(status), f"an entry {status}")


def test_a_secret_is_nowhere_in_its_letter_and_the_replay_has_it(guarded_site):
    site = guarded_site
    with site.worker(pool="solo"):
        site.app.publish({"n": 7, "fate": "login", "filler": SECRET}, type="Thing", id="e-7")
        raw = raw_letter(site)
        for part in ("hunter", "two", "pass", "refused: {"):
            assert part.encode() not in raw
        with analysis_of(site) as (waking, wait_until_it_is):
            entry = wait_until_it_is(Status.HELD)
            assert "hunter" not in repr(waking.ledger.open(entry.id))
            failure = waking.ledger.open(entry.id).failure
            assert waking.replayer.replay(entry, failure, by="me") == ""
            wait_until_it_is(Status.RESOLVED)
    logins = site.ran("login")
    assert [(run["replay"], run["filler"]) for run in logins] == [(0, SECRET), (1, SECRET)]
    assert "event_sent_to_dlq" in site.text()
    assert "raised expected" in site.text(), "by Celery; the ERROR line is ours"
    assert "hunter" not in site.text()


def test_a_letter_of_others_is_handled_by_the_task_of_its_route(make_site, amqp_url, tmp_path):
    routes = {"thing": {"bank.v1.MoneyLost": {"task": "road_app.record", "queue": "road-others"}}}
    letters = {"backend": "amqp", "amqp_url": amqp_url, "foreign_routes": routes}
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    site = make_site(ROAD_DLQ=json.dumps(letters), ROAD_PREFIX="road-others", ANGZARR_LEDGER=ledger)
    site.forget_letters("thing")
    page = {"event": {"@type": "x/bank.v1.MoneyLost", "amount": 7}}
    theirs = {"cover": {"domain": "thing"}, "rejectedEvents": {"pages": [page]}}
    with closing(site.app.ops.open_dead_letter_queue()) as queue:
        assert queue.put([decode(json.dumps(theirs).encode())]) == [None]
    with site.worker(pool="solo"), analysis_of(site) as (waking, wait_until_it_is):
        entry = wait_until_it_is(Status.HELD)
        failure = waking.ledger.open(entry.id).failure
        assert waking.replayer.replay(entry, failure, by="me") == ""
        wait_until_it_is(Status.RESOLVED)
    (run,) = site.ran("record")
    assert run["given"]["pages"][0]["data"] == {"amount": 7}
    assert run["given"]["letter_id"] == entry.letter_id
