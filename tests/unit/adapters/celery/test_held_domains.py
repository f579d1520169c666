"""What one process of a worker finds out about a wave, all of them see."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.adapters.celery.held_domains import HeldDomains

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
