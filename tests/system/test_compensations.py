"""What handlers set off is undone by a real worker: once for each of them, and never unasked."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.events import headers as names
from polling import wait_until
from system.analysts import analysts
from system.test_http_jobs import dashboard
from system.test_replay_jobs import HOLD, letter_of


@pytest.fixture
def site(make_site, tmp_path, redis_url):
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    site = make_site(broker=redis_url, ROAD_UNDO="1", ROAD_ASYNC="1", ANGZARR_LEDGER=ledger)
    site.forget_letters("thing")
    return site


def test_an_event_that_is_published_is_undone_by_nobody(site):
    with site.worker(pool="solo"):
        site.app.publish(site.module.Thing(n=1))
        site.wait_ran("handle")
        site.wait_ran("handle_async")
        site.app.send_task(site.module.UNDO, args=[{"n": 2}])
        assert [line["n"] for line in site.wait_ran("undo")] == [2]


def test_two_handlers_of_one_event_that_name_one_compensation_are_undone_both(site):
    letter = letter_of(site, 1, "give up")
    other = replace(letter, id="of-the-other", handler="road_app.handle_async")
    with closing(site.app.ops.open_ledger()) as ledger:
        entries = ledger.add_failed_events([letter, other])
        ledger.decide([Decided(entry_id=e.id, revision=e.revision, decision=HOLD) for e in entries],
                      by="me")  # fmt: skip
    with site.worker(pool="solo"), analysts(site) as start, dashboard(site.app) as api:
        start()
        for number, entry in enumerate(entries):
            asked = {"verb": "compensate", "entry_ids": [entry.id]}
            (told,) = api("/acts", asked, **{"Idempotency-Key": f"k{number}"})["results"]
            assert not told["problem"]
        undone = site.wait_ran("undo", 2)
        wait_until(lambda: all(_sent(site, entry) for entry in entries), "both to be sent")
    event_id = letter.message.headers[names.EVENT_ID]
    assert [(line["n"], line["because"]) for line in undone] == [(1, event_id)] * 2
    assert len({line["id"] for line in undone} | {event_id}) == 3


def _sent(site, entry):
    with closing(site.app.ops.open_ledger()) as ledger:
        found = ledger.open(entry.id).entry
    return found.status is Status.COMPENSATED and found.published_at
