"""A verb for many entries: what was asked is done once, each entry with its own result."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.ledger.transition import SKEW
from angzarr.analysis.replay.bulk_actions import act_on_all
from angzarr.dashboard.actions import MOST_COMPENSATED
from angzarr.dashboard.api import route as once
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.pages import entries as many
from angzarr.errors import LedgerUnavailable
from angzarr.settings.dashboard import Role
from contracts.ledger import HOLD, letter_of
from dashboard_caller import as_seen, browser, hidden
from dashboard_world import send_with_trouble
from hand_clock import START
from polling import wait_until

ACTS = f"{PREFIX}/acts"
KEY = {"Idempotency-Key": "k"}


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


# -- pages ---------------------------------------------------------------------------------------


SKIP = "/entries/acts/skip?domain=order"
UNDO = "/entries/acts/compensate?domain=order"


def asked(person, path):
    """The form of a question, as a browser would send it."""
    return hidden(person.get(path).text)


def statuses(world):
    return world.ledger.get_failure_stats().by_status


def test_what_failed_since_the_question_is_asked_about_and_not_done(world, person):
    (entry, *_) = world.file(2)
    path = f"/groups/{entry.fingerprint}/acts/skip"
    form = asked(person, path)
    world.clock.sleep(timedelta(seconds=1))
    late = world.ledger.add_failed_event(letter_of("late", last_attempt_at=world.clock.now()))
    assert late.fingerprint == entry.fingerprint
    answer = person.post(path, data=form)
    assert "<dt>Done</dt><dd>2</dd>" in answer.text
    assert statuses(world) == {"skipped": 2, "failed": 1}
    assert world.ledger.open(late.id).entry.status is Status.FAILED


@pytest.mark.parametrize("same_number", [False, True])
def test_others_than_were_asked_about_are_asked_about_again(world, person, same_number):
    first, *_ = world.file(3)
    form = asked(person, SKIP)
    act_on_all(world.skips, Verb.RESOLVE, [first], by="somebody")
    if same_number:  # failed before the question, filed after it
        world.ledger.add_failed_event(letter_of("late"))
    answer = person.post(SKIP, data=form | {"note": "typed"})
    assert answer.status_code == 412
    assert "Nothing was done" in answer.text
    assert f"Skip {3 if same_number else 2} entries with domain order?" in answer.text
    assert "typed</textarea>" in answer.text
    assert "skipped" not in statuses(world)
    again = person.post(SKIP, data=hidden(answer.text))
    assert f"<dt>Done</dt><dd>{3 if same_number else 2}</dd>" in again.text


def test_the_same_form_twice_asks_again(world, person):
    world.file(2)
    form = asked(person, SKIP)
    assert person.post(SKIP, data=form).status_code == 200
    again = person.post(SKIP, data=form)
    assert (again.status_code, "Skip 0 entries" in again.text) == (412, True)


@pytest.mark.parametrize("lost", ["until", "seen"])
def test_a_form_without_what_was_asked_does_nothing(world, person, lost):
    world.file(1)
    form = {name: value for name, value in asked(person, SKIP).items() if name != lost}
    assert person.post(SKIP, data=form).status_code in {412, 422}
    assert statuses(world) == {"failed": 1}


def test_a_form_cannot_reach_into_the_future(world, person):
    world.file(1)
    form = asked(person, SKIP) | {"until": "2999-01-01T00:00:00+00:00"}
    world.ledger.add_failed_event(letter_of("late", last_attempt_at=world.clock.now() + HOUR))
    assert person.post(SKIP, data=form).status_code == 412
    assert statuses(world) == {"failed": 2}


def test_what_a_worker_with_a_fast_clock_filed_is_asked_about_too(world, person):
    (entry,) = world.file(1)
    ahead = world.ledger.add_failed_event(
        letter_of("ahead", last_attempt_at=world.clock.now() + SKEW)
    )
    assert (ahead.fingerprint, ahead.last_failed_at) == (entry.fingerprint, START + SKEW)
    path = f"/groups/{entry.fingerprint}/acts/skip"
    form = asked(person, path)
    assert "Skip 2 entries" in person.get(path).text
    world.clock.sleep(timedelta(minutes=1))
    assert person.post(path, data=form).status_code == 200
    assert statuses(world) == {"skipped": 2}


HOUR = timedelta(hours=1)


def test_a_filter_that_names_nothing_is_refused(world, person):
    world.file(1)
    assert person.get("/entries/acts/skip").status_code == 422
    assert "Skip all…" not in person.get("/entries").text
    assert "Skip all…" in person.get("/entries?domain=order&status=").text


def test_a_filter_is_acted_on_within_its_own_end_and_status(world, person):
    world.file(2)
    world.ledger.add_failed_event(letter_of("later", last_attempt_at=world.clock.now() + HOUR))
    world.clock.sleep(2 * HOUR)
    path = f"{SKIP}&status=failed&until=2026-01-01T12:30:00Z"
    assert "Skip 2 entries with domain order" in person.get(path).text
    assert person.post(path, data=asked(person, path)).status_code == 200
    assert statuses(world) == {"skipped": 2, "failed": 1}


def test_more_than_one_step_takes_is_said(world, person, monkeypatch):
    monkeypatch.setattr(many, "MOST_AT_ONCE", 2)
    world.file(3)
    assert "do it again for more" in person.get(SKIP).text
    assert "do it again for more" in person.post(SKIP, data=asked(person, SKIP)).text
    assert statuses(world) == {"skipped": 2, "failed": 1}


def test_what_became_of_each_is_told_and_why_not(world, person, monkeypatch):
    entries = world.file(3)
    form = asked(person, UNDO)
    monkeypatch.setattr(world, "send", send_with_trouble())
    page = person.post(UNDO, data=form).text
    assert "<dt>Done</dt><dd>1</dd>" in page
    assert "<dd>1: the broker is away or the brake is pulled" in page
    assert "<dt>Not done</dt><dd>1</dd>" in page
    (why,) = re.findall(r"</code></a> (it is not known[^<]*)</li>", page)
    assert "look at the entry" in why
    assert sum(one.id in page for one in entries) == 2  # begun, and not known


def test_a_question_says_which_have_a_compensation_and_which_not(world, person):
    can, cannot = world.file(2)[0], world.ledger.add_failed_event(letter_of("x", handler="other"))
    page = person.get(UNDO).text
    assert "Compensate 2 entries" in page
    assert "1 more is left alone" in page
    assert "other names no compensation" in page
    told = person.post(UNDO, data=hidden(page)).text
    assert "<dt>Done</dt><dd>2</dd>" in told
    assert "other names no compensation" in told
    assert world.ledger.open(can.id).entry.status is Status.COMPENSATED
    assert world.ledger.open(cannot.id).entry.status is Status.FAILED


def test_what_could_not_be_compensated_when_asked_is_not_done_unasked(world, person, monkeypatch):
    world.file(1)
    world.ledger.add_failed_event(letter_of("x", handler="other"))
    form = asked(person, UNDO)
    monkeypatch.setattr(world, "of", lambda _handler: "orders.undo")
    answer = person.post(UNDO, data=form)
    assert answer.status_code == 412
    assert "Compensate 2 entries" in answer.text
    assert statuses(world) == {"failed": 2}


def test_a_viewer_is_not_asked_and_may_not_answer(world, person):
    world.file(1)
    form, viewer = asked(person, SKIP), browser(world, Role.VIEWER)
    assert viewer.get(SKIP).status_code == 403
    assert viewer.post(SKIP, data=form).status_code == 403
    assert "Skip all…" not in viewer.get("/entries?domain=order").text
    assert statuses(world) == {"failed": 1}
