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
    """Workers by name, and how many nodes each is."""
    return {"w1": 1, "w2": 1}


@pytest.fixture
def revoke(workers):
    """Revoke an event; *answer* is what each broadcast brings, given who is up."""

    def give(answer, patience=5.0):
        asked = []

        def broadcast(_task_id, *, limit, **_options):
            asked.append(limit)
            return answer(hosts(workers))

        module = SimpleNamespace(app=SimpleNamespace(control=SimpleNamespace(revoke=broadcast)))
        one = Sender(module, lambda _raw: None)
        until = time.monotonic() + patience
        return one.revoke(planned("revoked"), lambda: dict(workers), until), asked

    return give


def hosts(workers):
    """The nodes of *workers*, as Celery names them; a lone one has no number."""
    return [
        f"{name}-{number}@chaos" if nodes > 1 else f"{name}@chaos"
        for name, nodes in workers.items()
        for number in range(1, nodes + 1)
    ]


def confirm(hosts):
    return [{host: {"ok": "flagged as revoked"}} for host in hosts]


def test_all_that_confirm_have_heard(revoke):
    told, asked = revoke(confirm)
    assert told.up == told.heard == {"w1", "w2"}
    assert asked == [2]
    assert told.start <= told.end


def test_all_are_asked_again_until_each_has_answered(revoke):
    turns = iter([slice(0, 1), slice(1, 2)])
    told, asked = revoke(lambda hosts: confirm(hosts[next(turns)]))
    assert told.heard == {"w1", "w2"}
    assert asked == [2, 2]


def test_a_worker_of_several_nodes_has_heard_once_all_of_them_have(revoke, workers):
    workers["w2"] = 2
    told, asked = revoke(lambda hosts: confirm(hosts[:2]), patience=0.2)
    assert told.heard == {"w1"}
    assert {*asked} == {3}
    assert revoke(confirm)[0].heard == {"w1", "w2"}


def test_a_worker_that_starts_meanwhile_is_told_too_and_was_not_up(revoke, workers):
    workers["w3"] = 0

    def answer(hosts):
        workers["w3"] = 1
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
