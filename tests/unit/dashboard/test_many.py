"""A verb for many entries: chosen once, each with its own result, and no more than can be borne."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.dashboard import once
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.many import MOST_COMPENSATED
from angzarr.dashboard_section import Role
from angzarr.errors import LedgerUnavailable
from contracts.ledger import letter_of
from dashboard_caller import api, browser
from dashboard_world import send_with_trouble
from polling import wait_until

KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def client(world):
    return api(world)


def skip(limit):
    return {"verb": "skip", "filter": {"domain": "order"}, "limit": limit}


def ids(answer):
    return [one["id"] for one in answer.json()["results"]]


def test_a_request_sent_again_after_a_crash_acts_on_the_same_entries(world, client, monkeypatch):
    world.file(4)
    with monkeypatch.context() as died:
        died.setattr(world.writes, "finish", lambda *_: False)
        first = client.post(f"{PREFIX}/acts", json=skip(2), headers=KEY)
    world.clock.sleep(timedelta(minutes=1))
    again = client.post(f"{PREFIX}/acts", json=skip(2), headers=KEY)
    assert ids(again) == ids(first)
    assert (again.json()["done"], again.json()["refused"]) == (2, 0)
    assert world.ledger.get_failure_stats().by_status == {"skipped": 2, "failed": 2}


def test_a_request_sent_again_after_an_error_goes_on_with_its_choice(world, client, monkeypatch):
    world.file(2)
    act = world.ledger.act

    def done_and_lost(*acts, **options):
        act(*acts, **options)
        raise LedgerUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(world.ledger, "act", done_and_lost)
        assert client.post(f"{PREFIX}/acts", json=skip(1), headers=KEY).status_code == 503
    world.ledger.add_failed_event(letter_of("later"))
    assert client.post(f"{PREFIX}/acts", json=skip(1), headers=KEY).json()["done"] == 1
    assert world.ledger.get_failure_stats().by_status == {"skipped": 1, "failed": 2}


def test_what_changed_since_it_was_chosen_is_left_alone(world, client, monkeypatch):
    (entry,) = world.file(1)
    with monkeypatch.context() as broken:
        broken.setattr(world.ledger, "act", broken_act)
        client.post(f"{PREFIX}/acts", json=skip(1), headers=KEY)
    client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "escalate"})
    again = client.post(f"{PREFIX}/acts", json=skip(1), headers=KEY)
    assert again.json()["results"][0]["problem"] == "the entry was changed meanwhile"
    assert world.ledger.get_failure_stats().by_status == {"escalated": 1}


def broken_act(*_acts, **_options):
    raise LedgerUnavailable("away")


def test_a_request_that_takes_long_renews_its_lease(world, client, monkeypatch):
    """A lease of no time is asked for again at once, as long as the work goes on."""
    monkeypatch.setattr(once, "WRITE_LEASE", timedelta(0))
    world.file(1)
    begun, begin, act = [], world.writes.begin, world.ledger.act

    def counted(*key, **lease):
        begun.append(key)
        return begin(*key, **lease)

    def slow(*acts, **options):
        wait_until(lambda: len(begun) > 2)
        return act(*acts, **options)

    monkeypatch.setattr(world.writes, "begin", counted)
    monkeypatch.setattr(world.ledger, "act", slow)
    assert client.post(f"{PREFIX}/acts", json=skip(1), headers=KEY).json()["done"] == 1


def test_entries_a_verb_does_not_apply_to_are_not_even_read(world, client, monkeypatch):
    world.file(3)
    client.post(f"{PREFIX}/acts", json=skip(3))
    asked, get = [], world.ledger.get_failed_events

    def read(*wanted, **options):
        page = get(*wanted, **options)
        asked.extend(page.entries)
        return page

    monkeypatch.setattr(world.ledger, "get_failed_events", read)
    assert ids(client.post(f"{PREFIX}/acts", json={**skip(3), "dry_run": True})) == []
    assert asked == []


def test_questions_are_for_those_who_may_act(world):
    (entry, *_) = world.file(3)
    viewer = browser(world, Role.VIEWER)
    for page in (
        f"/groups/{entry.fingerprint}/acts/skip",
        f"/groups/{entry.fingerprint}/replay",
        f"/entries/{entry.id}/acts/skip",
        f"/entries/{entry.id}/replay",
    ):
        assert viewer.get(page).status_code == 403


def test_compensations_that_are_only_begun_are_told_from_those_done(world, client, monkeypatch):
    world.file(3)
    monkeypatch.setattr(world, "send", send_with_trouble())
    told = client.post(f"{PREFIX}/acts", json=skip(3) | {"verb": "compensate"}).json()
    assert (told["done"], told["begun"], told["refused"]) == (1, 1, 1)
    assert "not known" in told["results"][2]["problem"]


def test_a_dry_run_says_which_have_no_compensation(world, client):
    can, cannot = world.file(1)[0], world.ledger.add_failed_event(letter_of("x", handler="other"))
    dry = skip(3) | {"verb": "compensate", "dry_run": True}
    results = client.post(f"{PREFIX}/acts", json=dry).json()["results"]
    told = {one["id"]: one["problem"] for one in results}
    assert told[can.id] is None
    assert "other names no compensation" in told[cannot.id]
    assert world.sent == []


def test_no_more_is_compensated_at_once_than_can_be_waited_for(world, client):
    named = {"verb": "compensate", "entry_ids": [f"{n:064x}" for n in range(MOST_COMPENSATED + 1)]}
    assert client.post(f"{PREFIX}/acts", json=named).status_code == 422
    world.file(MOST_COMPENSATED + 1)
    told = client.post(f"{PREFIX}/acts", json=skip(1000) | {"verb": "compensate"}).json()
    assert told["done"] == MOST_COMPENSATED


def test_a_key_used_for_another_job_a_day_later_begins_that_job(world, client):
    first, *_ = world.file(2)
    body = {"filter": {"fingerprint": first.fingerprint}}
    begun = client.post(f"{PREFIX}/jobs", json=body, headers=KEY).json()["id"]
    world.clock.sleep(timedelta(hours=25))
    other = client.post(f"{PREFIX}/jobs", json=body | {"note": "again"}, headers=KEY)
    assert other.json()["id"] != begun
