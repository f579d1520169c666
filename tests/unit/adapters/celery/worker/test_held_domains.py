"""What one process of a worker finds out about a wave, all of them see."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.adapters.celery.worker.queue_pauser import HeldDomains
from angzarr.clock import SystemClock, follow

SOON = timedelta(minutes=1)


@pytest.fixture
def held():
    held = HeldDomains()
    held.begin(["order", "invoice"])
    return held


def now():
    return datetime.now(UTC)


def test_a_domain_is_held_until_its_time(held):
    held.hold("order", now() + SOON)
    held.hold("invoice", now() - SOON)
    assert held.now() == {"order"}


def test_a_domain_that_no_handler_names_has_no_place_and_does_no_harm(held):
    held.hold("unknown", now() + SOON)
    assert held.now() == set()


def test_what_a_child_finds_out_its_parent_sees(held):
    child = os.fork()
    if child == 0:
        held.hold("invoice", now() + SOON)
        os._exit(0)
    os.waitpid(child, 0)
    assert held.now() == {"invoice"}


@pytest.mark.parametrize("skew", [timedelta(days=-1), timedelta(days=1)])
@pytest.mark.parametrize("known_first", [True, False])
def test_a_domain_is_held_for_its_span_where_the_machines_clock_is_wrong(held, skew, known_first):
    try:
        if known_first:
            follow(now() + skew)
        held.hold("order", SystemClock().now() + SOON)
        held.hold("invoice", SystemClock().now() - SOON)
        follow(now() + skew)
        assert held.now() == {"order"}
    finally:
        follow(None)


def test_a_clock_that_is_set_meanwhile_holds_no_domain_longer(held, monkeypatch):
    held.hold("order", now() + SOON)
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + SOON.total_seconds())
    assert held.now() == set()
