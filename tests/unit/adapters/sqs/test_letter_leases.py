"""Leases are renewed while a receipt is in hand, by a thread that outlives failures, and end."""

from __future__ import annotations

import threading

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.letter_leases import LONGEST, LeaseRenewal, Leases, extension

VISIBILITY = 300


class Sqs:
    """Notes what it is asked; `refuse` names entries, `away` answers nothing."""

    def __init__(self):
        self.asked, self.refuse, self.away = [], set(), False

    def change(self, url, entries):
        if self.away:
            raise EndpointConnectionError(endpoint_url="http://s3cret")
        self.asked.append((url, [(e["ReceiptHandle"], e["VisibilityTimeout"]) for e in entries]))
        return {"Successful": [e for e in entries if e["ReceiptHandle"] not in self.refuse]}


@pytest.fixture
def sqs():
    return Sqs()


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def leases(sqs, now):
    return Leases(sqs.change, VISIBILITY, monotonic=lambda: now[0])


def test_nothing_held_needs_no_renewal(leases):
    assert leases.renew() is None


def test_a_lease_is_renewed_well_before_it_ends(leases, sqs, now):
    handle = leases.hold("q", "r", 0.0)
    assert leases.renew() == 100
    assert sqs.asked == []
    now[0] = 100
    assert leases.renew() == 100
    assert sqs.asked == [("q", [("r", 300)])]
    assert leases.held([handle]) == [handle.lease]


def test_renewals_go_in_batches_of_ten_by_queue(leases, sqs, now):
    handles = [leases.hold(f"q{n % 2}", f"r{n}", 0.0) for n in range(24)]
    now[0] = 100
    leases.renew()
    assert [(url, len(entries)) for url, entries in sqs.asked] == [
        ("q0", 10), ("q0", 2), ("q1", 10), ("q1", 2),
    ]  # fmt: skip
    assert len(handles) == 24


def test_what_nobody_holds_any_more_is_not_renewed_and_ends(leases, sqs, now):
    handle = leases.hold("q", "r", 0.0)
    lease = handle.lease
    del handle
    now[0] = 150
    assert leases.renew() == 100
    assert sqs.asked == []
    now[0] = 300
    assert leases.renew() is None
    assert lease.ends == 300


def test_what_was_let_go_is_not_renewed(leases, sqs, now):
    handles = [leases.hold("q", f"r{n}", 0.0) for n in range(2)]
    leases.let_go(leases.held(handles[:1]))
    now[0] = 100
    leases.renew()
    assert sqs.asked == [("q", [("r1", 300)])]


def test_a_renewal_that_fails_is_tried_again_until_the_lease_has_ended(leases, sqs, now, caplog):
    handle = leases.hold("q", "r", 0.0)
    sqs.away = True
    for _ in range(7):
        now[0] += leases.renew()
    assert caplog.text.count("may come again: no answer (EndpointConnectionError)") == 1
    assert now[0] == 280, "its sixth try failed 30 s ago"
    sqs.away = False
    leases.renew()
    assert (handle.lease.ends, len(sqs.asked)) == (580, 1)


def test_what_ended_while_it_was_in_hand_is_asked_for_no_more(leases, sqs, now):
    handle = leases.hold("q", "r", 0.0)
    sqs.refuse.add("r")
    now[0] = 301
    leases.renew()
    now[0] = 600
    leases.renew()
    assert len(sqs.asked) == 1
    assert leases.held([handle]) == [handle.lease], "done tries to delete it all the same"
    assert leases.let_all_go() == [], "it may be somebody else's"


def test_a_lease_ends_twelve_hours_after_it_was_received(leases, sqs, now):
    handle = leases.hold("q", "r", 0.0)
    while now[0] < LONGEST + 1000:
        now[0] += leases.renew()
    assert handle.lease.ends <= LONGEST
    assert handle.lease.ends > LONGEST - 2
    assert all(0 < seconds <= 300 for _, [(_, seconds)] in sqs.asked)


@given(age=st.floats(0, 2 * LONGEST), visibility=st.integers(1, int(LONGEST)))
def test_no_extension_goes_beyond_what_sqs_allows(age, visibility):
    given_ = extension(age, visibility)
    assert 0 <= given_ <= visibility
    assert given_ == 0 or age + given_ <= LONGEST


@pytest.fixture
def calls():
    return threading.Semaphore(0)


def test_it_ends_where_nothing_is_held_and_begins_again(calls):
    renewal = LeaseRenewal(calls.release, pause=0)
    for _ in range(3):
        renewal.begin()
        assert calls.acquire(timeout=60)
    renewal.stop(10)


def test_a_letter_that_comes_as_it_ends_is_not_forgotten(calls):
    renewal: LeaseRenewal

    def renew():
        calls.release()
        if len(begun) < 2:
            begun.append(renewal.begin())

    begun = []
    renewal = LeaseRenewal(renew, pause=0)
    renewal.begin()
    for _ in range(3):
        assert calls.acquire(timeout=60)
    renewal.stop(10)


def test_it_goes_on_after_an_error_that_nobody_foresaw(calls, caplog):
    def renew():
        calls.release()
        raise KeyError

    renewal = LeaseRenewal(renew, pause=0)
    renewal.begin()
    for _ in range(3):
        assert calls.acquire(timeout=60)
    renewal.stop(10)
    assert "letter_leases_not_renewed" in caplog.text


def test_stopping_waits_for_the_call_under_way(calls):
    go, ended = threading.Event(), []

    def renew():
        calls.release()
        go.wait(60)
        ended.append(True)
        return 100.0

    renewal = LeaseRenewal(renew, pause=0)
    renewal.begin()
    assert calls.acquire(timeout=60)
    threading.Timer(0.05, go.set).start()
    renewal.stop(10)
    assert ended == [True]


def test_a_process_without_room_for_a_thread_goes_on_without(monkeypatch):
    def refuse(_):
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    renewal = LeaseRenewal(lambda: None, pause=0)
    renewal.begin()
    renewal.stop(1)
