"""Nobody without a signing key tells the analysis worker how a replay ended."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from angzarr.dead_letters.replay_outcome import ReplayOutcome, SignedOutcomes
from angzarr.dead_letters.signing import Signatures

SECRET = b"a secret, 16 characters"
SIGN = Signatures(keys={"2026": SECRET}, current="2026")
TOLD = ReplayOutcome(letter_id="l1", replay=2, outcome="handled", handler="h", event_id="e1")
FORGED = {"letter_id": "l2", "replay": 3, "outcome": "skipped", "handler": "i", "event_id": "e2"}


class Outcomes:
    def __init__(self):
        self.waiting, self.let_go = [], []

    def put(self, outcome):
        self.waiting.append(outcome)

    def receive(self, *, limit, wait):
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def done(self, outcomes):
        self.let_go += outcomes


@pytest.fixture
def queue():
    return Outcomes()


def end(queue, signatures=SIGN, **options):
    return SignedOutcomes(queue=queue, signatures=signatures, **options)


def received(queue, signatures=SIGN, **options):
    return end(queue, signatures, **options).receive(limit=9, wait=timedelta(0))


def test_what_was_signed_is_believed(queue):
    end(queue).put(TOLD)
    (one,) = received(queue)
    assert replace(one, signature="") == TOLD
    assert queue.let_go == []


def test_every_field_is_signed():
    assert {one.name for one in fields(ReplayOutcome)} == {*FORGED, "signature", "handle"}


@pytest.mark.parametrize("name", FORGED)
def test_a_change_is_found_and_let_go(queue, name, caplog):
    end(queue).put(TOLD)
    queue.waiting = [replace(queue.waiting[0], **{name: FORGED[name]})]
    assert received(queue) == []
    assert len(queue.let_go) == 1
    assert "replay_outcome_not_signed" in caplog.text


@pytest.mark.parametrize(
    "signature", ["", ":", "2026", "2026:", "2025:x", "2026:é\udcff", "x" * 9999]
)
def test_odd_signatures_are_none(queue, signature):
    queue.put(replace(TOLD, signature=signature))
    assert received(queue) == []


def test_workers_without_a_key_are_believed_only_if_that_is_said(queue):
    queue.put(TOLD)
    assert received(queue, accept_unsigned=True) == [TOLD]
    queue.put(replace(TOLD, signature="2026:forged"))
    assert received(queue, accept_unsigned=True) == []


def test_any_key_that_is_known_verifies(queue):
    end(queue).put(TOLD)
    new = Signatures(keys={"2026": SECRET, "2027": b"another, 16 characters"}, current="2027")
    assert len(received(queue, new)) == 1


def test_good_ones_beside_forged_ones_are_kept(queue, caplog):
    for _ in range(3):
        queue.put(TOLD)
        end(queue).put(TOLD)
    assert len(received(queue)) == 3
    assert len(queue.let_go) == 3
