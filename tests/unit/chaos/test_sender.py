"""A revocation is broadcast until every worker has confirmed it, or that takes too long."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from tests.unit.chaos.conftest import planned

from chaos import sender
from chaos.sender import Sender


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(sender, "LOOK", 0.001)


@pytest.fixture
def workers():
    """Workers by name, and whether they are ready."""
    return {"w1": True, "w2": True}


@pytest.fixture
def revoke(workers):
    """Revoke an event; *answer* is what each broadcast brings, given whom it asks."""

    def give(answer, patience=5.0):
        asked = []

        def broadcast(_task_id, *, destination, **_options):
            asked.append(destination)
            return answer(destination)

        module = SimpleNamespace(app=SimpleNamespace(control=SimpleNamespace(revoke=broadcast)))
        one = Sender(module, lambda _raw: None)
        until = time.monotonic() + patience
        return one.revoke(planned("revoked"), lambda: dict(workers), until), asked

    return give


def confirm(hosts):
    return [{host: {"ok": "flagged as revoked"}} for host in hosts]


def test_all_that_confirm_have_heard(revoke):
    told, asked = revoke(confirm)
    assert told.up == told.heard == {"w1", "w2"}
    assert asked == [["w1@chaos", "w2@chaos"]]
    assert told.start <= told.end


def test_who_did_not_answer_is_asked_again_alone(revoke):
    told, asked = revoke(lambda hosts: confirm(hosts[:1]))
    assert told.heard == {"w1", "w2"}
    assert asked == [["w1@chaos", "w2@chaos"], ["w2@chaos"]]


def test_a_worker_that_starts_meanwhile_is_told_too_and_was_not_up(revoke, workers):
    workers["w3"] = False

    def answer(hosts):
        workers["w3"] = True
        return confirm(hosts)

    told, _ = revoke(answer)
    assert told.heard == {"w1", "w2", "w3"}
    assert told.up == {"w1", "w2"}


def test_a_worker_that_is_frozen_is_not_waited_for_for_ever(revoke):
    told, _ = revoke(lambda hosts: confirm(set(hosts) - {"w2@chaos"}), patience=0.2)
    assert told.heard == {"w1"}
    assert told.up == {"w1", "w2"}


def test_an_answer_that_is_no_confirmation_is_none(revoke):
    told, _ = revoke(lambda hosts: [{host: {"error": "no"}} for host in hosts], patience=0.1)
    assert told.heard == frozenset()


def test_a_broker_that_is_away_carries_no_broadcast(revoke):
    def away(_hosts):
        raise ConnectionError

    told, _ = revoke(away, patience=0.1)
    assert told.heard == frozenset()
