"""A verb for many entries: chosen once, each with its own result, and no more than can be borne."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.analysis.ledger.ledger import Decided
from angzarr.dashboard import idempotency as once
from angzarr.dashboard.actions import MOST_COMPENSATED
from angzarr.dashboard.api.route import PREFIX
from angzarr.errors import LedgerUnavailable
from angzarr.settings.dashboard import Role
from contracts.ledger import HOLD, letter_of
from dashboard_caller import api, as_seen, browser
from dashboard_world import send_with_trouble
from polling import wait_until

ACTS = f"{PREFIX}/acts"
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
    body = as_seen(client, ACTS, skip(2))
    with monkeypatch.context() as died:
        died.setattr(world.writes, "finish", lambda *_: False)
        first = client.post(ACTS, json=body, headers=KEY)
    world.clock.sleep(timedelta(minutes=1))
    again = client.post(ACTS, json=body, headers=KEY)
    assert ids(again) == ids(first)
    assert (again.json()["done"], again.json()["refused"]) == (2, 0)
    assert world.ledger.get_failure_stats().by_status == {"skipped": 2, "failed": 2}


def test_a_request_sent_again_after_an_error_goes_on_with_its_choice(world, client, monkeypatch):
    world.file(2)
    body = as_seen(client, ACTS, skip(1))
    act = world.ledger.act

    def done_and_lost(*acts, **options):
        act(*acts, **options)
        raise LedgerUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(world.ledger, "act", done_and_lost)
        assert client.post(ACTS, json=body, headers=KEY).status_code == 503
    world.ledger.add_failed_event(letter_of("later"))
    assert client.post(ACTS, json=body, headers=KEY).json()["done"] == 1
    assert world.ledger.get_failure_stats().by_status == {"skipped": 1, "failed": 2}


def test_what_changed_since_it_was_chosen_is_left_alone(world, client, monkeypatch):
    (entry,) = world.file(1)
    body = as_seen(client, ACTS, skip(1))
    with monkeypatch.context() as broken:
        broken.setattr(world.ledger, "act", broken_act)
        client.post(ACTS, json=body, headers=KEY)
    client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "escalate"})
    again = client.post(ACTS, json=body, headers=KEY)
    assert again.json()["results"][0]["problem"] == "the entry was changed meanwhile"
    assert world.ledger.get_failure_stats().by_status == {"escalated": 1}


def broken_act(*_acts, **_options):
    raise LedgerUnavailable("away")


def test_a_request_that_takes_long_renews_its_lease(world, client, monkeypatch):
    """A lease of no time is asked for again at once, as long as the work goes on."""
    monkeypatch.setattr(once, "WRITE_LEASE", timedelta(0))
    world.file(1)
    body = as_seen(client, ACTS, skip(1))
    begun, begin, act = [], world.writes.begin, world.ledger.act

    def counted(*key, **lease):
        begun.append(key)
        return begin(*key, **lease)

    def slow(*acts, **options):
        wait_until(lambda: len(begun) > 2)
        return act(*acts, **options)

    monkeypatch.setattr(world.writes, "begin", counted)
    monkeypatch.setattr(world.ledger, "act", slow)
    assert client.post(ACTS, json=body, headers=KEY).json()["done"] == 1


def test_entries_a_verb_does_not_apply_to_are_not_even_read(world, client, monkeypatch):
    world.file(3)
    client.post(ACTS, json=as_seen(client, ACTS, skip(3)))
    asked, get = [], world.ledger.get_failed_events

    def read(*wanted, **options):
        page = get(*wanted, **options)
        asked.extend(page.entries)
        return page

    monkeypatch.setattr(world.ledger, "get_failed_events", read)
    assert ids(client.post(ACTS, json={**skip(3), "dry_run": True})) == []
    assert len(asked) == 1  # the newest, which tells the moment


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
    body = as_seen(client, ACTS, skip(3) | {"verb": "compensate"})
    told = client.post(ACTS, json=body).json()
    assert (told["done"], told["begun"], told["refused"]) == (1, 1, 1)
    assert "not known" in told["results"][2]["problem"]


def test_a_dry_run_says_which_have_no_compensation(world, client):
    can, cannot = world.file(1)[0], world.ledger.add_failed_event(letter_of("x", handler="other"))
    dry = skip(3) | {"verb": "compensate", "dry_run": True}
    results = client.post(ACTS, json=dry).json()["results"]
    told = {one["id"]: one["problem"] for one in results}
    assert told[can.id] is None
    assert "other names no compensation" in told[cannot.id]
    assert world.sent == []


def test_no_more_is_compensated_at_once_than_can_be_waited_for(world, client):
    named = {"verb": "compensate", "entry_ids": [f"{n:064x}" for n in range(MOST_COMPENSATED + 1)]}
    assert client.post(ACTS, json=named).status_code == 422
    world.file(MOST_COMPENSATED + 1)
    body = as_seen(client, ACTS, skip(1000) | {"verb": "compensate"})
    told = client.post(ACTS, json=body).json()
    assert told["done"] == MOST_COMPENSATED


def test_a_key_used_for_another_job_a_day_later_begins_that_job(world, client):
    first, *_ = world.file(2)
    body = {"filter": {"fingerprint": first.fingerprint}}
    begun = client.post(f"{PREFIX}/jobs", json=body, headers=KEY).json()["id"]
    world.jobs.cancel(begun, by="ann")
    world.clock.sleep(timedelta(hours=25))
    other = client.post(f"{PREFIX}/jobs", json=body | {"note": "again"}, headers=KEY)
    assert other.json()["id"] != begun


# -- as it was seen ----------------------------------------------------------------------------


def group_of(world):
    (entry, *_) = world.file(3)
    return f"{PREFIX}/groups/{entry.fingerprint}/acts"


@pytest.mark.parametrize("of_group", [False, True])
def test_nobody_acts_on_a_filter_that_he_has_not_seen(world, client, of_group):
    path, body = (group_of(world), {"verb": "skip"}) if of_group else (ACTS, skip(3))
    world.file(3)
    refused = client.post(path, json=body, headers=KEY)
    assert (refused.status_code, refused.json()["type"][-12:]) == (428, "seen-missing")
    assert world.ledger.get_failure_stats().by_status == {"failed": 3}
    body = as_seen(client, path, body)
    assert client.post(path, json=body, headers=KEY).json()["done"] == 3


@pytest.mark.parametrize("of_group", [False, True])
@pytest.mark.parametrize("other", ["resolved", "filed", "both"])
def test_others_than_a_dry_run_found_are_left_alone(world, client, of_group, other):
    (first, *_) = world.file(3)
    path, body = (group_of(world), {"verb": "skip"}) if of_group else (ACTS, skip(10))
    body = as_seen(client, path, body)
    if other != "filed":
        client.post(f"{PREFIX}/entries/{first.id}/acts", json={"verb": "resolve"})
    if other != "resolved":  # failed before the dry run, filed after it
        world.ledger.add_failed_event(letter_of("late"))
    before = world.ledger.get_failure_stats().by_status
    refused = client.post(path, json=body)
    assert (refused.status_code, refused.json()["type"][-5:]) == (412, "stale")
    assert world.ledger.get_failure_stats().by_status == before
    assert client.post(path, json=as_seen(client, path, body)).json()["refused"] == 0


def test_what_failed_after_the_dry_run_is_left_alone(world, client):
    world.file(2)
    body = as_seen(client, ACTS, skip(10))
    world.clock.sleep(timedelta(seconds=1))
    world.ledger.add_failed_event(letter_of("late", last_attempt_at=world.clock.now()))
    assert client.post(ACTS, json=body).json()["done"] == 2
    assert world.ledger.get_failure_stats().by_status == {"skipped": 2, "failed": 1}


def test_a_moment_to_come_finds_no_more_than_there_is(world, client):
    world.file(1)
    body = as_seen(client, ACTS, skip(10))
    body["seen"]["until"] = "2999-01-01T00:00:00Z"
    assert client.post(ACTS, json=body).json()["done"] == 1


def test_entries_by_id_may_be_acted_on_as_they_were_seen(world, client):
    first, second = world.file(2)
    named = {"verb": "skip", "entry_ids": [first.id, second.id, "0" * 64]}
    body = as_seen(client, ACTS, named)
    client.post(f"{PREFIX}/entries/{first.id}/acts", json={"verb": "resolve"})
    assert client.post(ACTS, json=body).status_code == 412
    assert world.ledger.open(second.id).entry.status == "failed"
    told = client.post(ACTS, json=named).json()
    assert (told["done"], told["refused"], told["seen"]) == (1, 2, None)


def test_a_job_is_begun_of_what_its_dry_run_found_or_not_at_all(world, client):
    path = f"{PREFIX}/jobs"
    first, *_ = world.file(2)
    body = as_seen(client, path, {"filter": {"domain": "order"}})
    client.post(f"{PREFIX}/entries/{first.id}/acts", json={"verb": "skip"})
    assert client.post(path, json=body).status_code == 412
    assert world.jobs.all == {}
    body = as_seen(client, path, {"filter": {"domain": "order"}})
    job = client.post(path, json=body, headers=KEY)
    assert (job.status_code, job.json()["total"]) == (201, 1)
    named = as_seen(client, path, {"entry_ids": [first.id]})
    assert client.post(path, json=named).status_code == 201


def test_a_job_with_a_limit_has_what_its_dry_run_showed(world, client):
    path = f"{PREFIX}/jobs"
    one_by_one = [
        world.ledger.add_failed_event(
            letter_of(f"e{number}", last_attempt_at=world.clock.now() - timedelta(minutes=number))
        )
        for number in range(5)
    ]
    asked = {"filter": {"domain": "order"}, "limit": 2}
    oldest = [one.id for one in one_by_one[:2:-1]]
    body = as_seen(client, path, asked)
    assert client.post(path, json=asked | {"dry_run": True}).json()["sample"] == oldest
    job = client.post(path, json=body).json()["id"]
    assert [one.entry_id for one in world.jobs.items(job)] == oldest
    assert client.post(path, json=body).status_code == 412  # by now they are that job's
    left = client.post(path, json=asked | {"dry_run": True}).json()
    assert (left["would_send"], sum(left["refused"].values())) == (0, 2)


@pytest.mark.parametrize("other", ["a_change", "nothing"])
def test_a_verb_with_a_limit_is_done_to_what_its_dry_run_showed(world, client, other):
    entries = world.file(4)  # all failed at one moment
    if other == "a_change":
        held = Decided(entry_id=entries[0].id, revision=entries[0].revision, decision=HOLD)
        assert world.ledger.decide([held], by="me") == [True]
    first = ids(client.post(ACTS, json=skip(2) | {"dry_run": True}))
    assert first == sorted((one.id for one in entries), reverse=True)[:2]
    assert ids(client.post(ACTS, json=as_seen(client, ACTS, skip(2)))) == first


def test_a_job_whose_answer_was_lost_is_not_asked_about_again(world, client, monkeypatch):
    path = f"{PREFIX}/jobs"
    (entry,) = world.file(1)
    body = as_seen(client, path, {"filter": {"domain": "order"}})
    with monkeypatch.context() as died:
        died.setattr(world.writes, "finish", lambda *_: False)
        first = client.post(path, json=body, headers=KEY).json()["id"]
    client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "skip"})
    world.clock.sleep(timedelta(minutes=1))
    assert client.post(path, json=body, headers=KEY).json()["id"] == first
    assert len(world.jobs.all) == 1
