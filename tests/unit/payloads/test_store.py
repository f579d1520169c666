"""Payloads for people: none too large, few at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from angzarr.errors import PayloadsBusy, PayloadStoreUnavailable, PayloadTooLarge
from angzarr.payloads.store import PayloadReadLimit, turn
from memory_payloads import MemoryPayloadStore


def opened(at_once=1):
    openings = PayloadReadLimit(MemoryPayloadStore(), most=10, at_once=at_once)
    return openings, openings.put(b"0123456789")


def test_what_is_larger_is_not_even_fetched(monkeypatch):
    openings, _ = opened()
    large = openings.put(b"0123456789a")
    monkeypatch.setattr(MemoryPayloadStore, "fetch", None)
    with pytest.raises(PayloadTooLarge, match=r"no more than 10 bytes .*largest_opened\)$"):
        openings.fetch(large)


def test_a_turn_opens_many_and_others_wait_until_it_is_over():
    openings, reference = opened()
    with turn():
        assert [openings.fetch(reference) for _ in range(3)] == [b"0123456789"] * 3
        with ThreadPoolExecutor(1) as other:
            in_it = copy_context()
            assert other.submit(in_it.run, openings.fetch, reference).result()
            assert issubclass(PayloadsBusy, PayloadStoreUnavailable)
            with pytest.raises(PayloadsBusy):
                other.submit(openings.fetch, reference).result()
    assert openings.fetch(reference)
    assert openings.fetch(reference)


def test_a_fetch_that_fails_gives_its_place_back():
    openings, reference = opened()
    gone = openings.put(b"gone")
    openings._store.payloads.popitem()
    for _ in range(3):
        with pytest.raises(Exception, match="is gone"):
            openings.fetch(gone)
    assert openings.fetch(reference)
