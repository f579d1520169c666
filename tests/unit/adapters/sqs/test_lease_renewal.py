"""The thread that renews leases begins and ends with them, and outlives failures."""

from __future__ import annotations

import threading

import pytest

from angzarr.adapters.sqs.letter_leases import LeaseRenewal


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
