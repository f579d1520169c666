"""Which endings release the body of a message, and which do not."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.delivery.delivery import (
    DeadLettered,
    Duplicate,
    Handled,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
)
from angzarr.errors import GiveUp, Postpone, RetryLater, Skip
from angzarr.events.event import digest
from angzarr.events.headers import HOP, REPLAY
from angzarr.payloads.claim_check import ARGUMENT, HEADER, ClaimCheck, write_check
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import holding, message_holder
from angzarr.resilience.idempotency import key_for

DATA = {"order": "o-1"}


class Holding:
    """A world in which each message's body is registered, as its publisher does."""

    def __init__(self, world) -> None:
        self.world = world
        self.holders = world.store.holders

    def message(self, data=DATA, *, replay=0, **headers):
        told = digest([[data], {}])
        holder = message_holder(key_for("h", "e1"), replay, told)
        body = json.dumps([[data], {}, {}]).encode()
        reference = self.world.payloads.put(body, holding(self.holders, holder))
        check = ClaimCheck(reference=reference, digest=told)
        given = {HEADER: write_check(check), **headers} | ({REPLAY: replay} if replay else {})
        message = self.world.message(**given)
        return replace(message, body=json.dumps([[], {ARGUMENT: "there"}, {}]).encode())

    def take(self, message):
        return self.world.take(message)

    def held(self):
        return self.holders.count()[PayloadState.HELD].bodies


@pytest.fixture
def site(make_world):
    return Holding(make_world())


def raising(error):
    def handle(_data, _context):
        raise error

    return handle


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda _data, _context: 7, Handled),
        (raising(Skip("no")), Skipped),
        (raising(GiveUp("no")), DeadLettered),
    ],
    ids=["handled", "skipped", "dead"],
)
def test_an_event_that_ends_releases_its_body_with_its_claim(site, call, outcome):
    site.world.handler(call)
    message = site.message()
    assert isinstance(site.take(message), outcome)
    assert site.held() == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RetryLater(timedelta(seconds=5)), Retried), (Postpone(timedelta(seconds=5)), Postponed)],
    ids=["retried", "postponed"],
)
def test_an_event_that_comes_again_holds_its_body(site, error, outcome):
    site.world.handler(raising(error))
    assert isinstance(site.take(site.message()), outcome)
    assert site.held() == 1
    assert isinstance(site.take(site.message()), Superseded)
    assert site.held() == 1, "its copy needs it"


def test_an_event_that_was_sent_twice_releases_what_the_second_registered(site):
    site.world.handler(lambda _data, _context: 7)
    site.take(site.message())
    again = site.message()
    assert site.held() == 1
    assert isinstance(site.take(again), Duplicate)
    assert site.held() == 0


def test_a_message_of_a_failed_event_takes_no_body_from_its_replay(site):
    site.world.handler(raising(GiveUp("no")))
    first = site.message()
    site.take(first)
    replayed = site.message(replay=1)
    assert isinstance(site.take(first), Refused)
    assert site.held() == 1
    site.take(replayed)
    assert site.held() == 0


def test_a_second_body_under_one_id_releases_itself_alone(site):
    site.world.handler(raising(RetryLater(timedelta(seconds=5))))
    site.take(site.message())
    other = site.message({"order": "another"})
    assert site.held() == 2
    assert isinstance(site.take(other), DeadLettered)
    assert site.held() == 1
    copy = replace(site.message(), headers={**site.message().headers, HOP: 1})
    assert isinstance(site.take(copy), Retried)
    assert site.held() == 1


@pytest.mark.parametrize("store_is_here", [True, False])
def test_a_worker_whose_letters_hold_nothing_leaves_them_the_hold_of_the_message(
    site, store_is_here
):
    message = site.message()
    site.world.letters_hold = False
    if not store_is_here:
        site.world.payloads = None
    site.world.handler(raising(GiveUp("no")))
    assert isinstance(site.take(message), DeadLettered)
    assert site.held() == 1


def test_a_forged_message_releases_no_body_that_it_does_not_hold(site):
    site.world.handler(lambda _data, _context: 7)
    victim = site.message()
    check = json.loads(victim.headers[HEADER])
    forged = site.world.message(
        event_id="e2", **{HEADER: json.dumps({**check, "digest": digest([[DATA], {}])})}
    )
    assert isinstance(site.take(forged), Handled)
    assert site.held() == 1
    site.take(victim)
    assert site.held() == 0


def test_a_message_with_its_body_asks_for_nothing(site, monkeypatch):
    site.world.handler(lambda _data, _context: 7)

    def never(*_asked):
        raise AssertionError

    for verb in ("hold", "join", "release"):
        monkeypatch.setattr(type(site.holders), verb, never)
    assert isinstance(site.take(site.world.message()), Handled)
    assert isinstance(site.take(site.world.message()), Duplicate)
