"""Verbs for many entries on pages: what was asked about is done, and what became of it is told."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.ledger.transition import SKEW
from angzarr.analysis.replay.bulk_actions import act_on_all
from angzarr.dashboard.pages import many
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from dashboard_caller import browser, hidden
from dashboard_world import send_with_trouble
from hand_clock import START

SKIP = "/entries/acts/skip?domain=order"
UNDO = "/entries/acts/compensate?domain=order"


@pytest.fixture
def person(world):
    return browser(world)


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
