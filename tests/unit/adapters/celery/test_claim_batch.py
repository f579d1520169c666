"""Claims that ride on the fetch, and completions that ride on the acknowledgement."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.claim_batch import BATCHED_CLAIM, ClaimBatch, LeftToAck, release_claims
from angzarr.adapters.celery.envelope import answer_in, sent_as
from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.adapters.redis.unacked import ENDING
from angzarr.delivery.completions import LeftCompletion
from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    Claimed,
    Complete,
    Conflict,
    InProgress,
)
from angzarr.settings.delivery import MessageSettings

BOUNDS = MessageSettings().bounds


def nothing(*_args):
    pass


class Away:
    def claim(self, *_claims):
        msg = "away"
        raise StoreUnavailable(msg)

    settle = settle_all = claim


@pytest.fixture
def leases():
    return MemoryOwnerLeases()


@pytest.fixture
def store(leases):
    return MemoryIdempotencyStore(leases)


@pytest.fixture
def tenure(leases):
    return Tenure(leases)


@pytest.fixture
def claim_batch(app, store, tenure):
    app.task(name="t", lazy=False)(nothing)
    return batch_of(app.handlers, store, tenure, lambda *made: made)


def batch_of(handlers, store, tenure, make_ending=None):
    return ClaimBatch(handlers, store, tenure, "me", BOUNDS, make_ending)


def message(task_id="1", args=(1,), *, task="t", redelivered=False, **headers):
    return raw_message(
        headers={"id": task_id, "task": task, **headers},
        payload=[list(args), {}, {}],
        delivery_info={"redelivered": redelivered},
    )


def raw_message(**fields):
    """A message as kombu would give it, read already."""
    usual = {"body": b"", "content_type": "application/json", "content_encoding": "utf-8"}
    return SimpleNamespace(**{**usual, "properties": {}, **fields})


def ride_of(given):
    return getattr(given, BATCHED_CLAIM, None)


def test_all_messages_of_a_fetch_are_claimed_in_one_call_and_count_no_start(claim_batch, store):
    calls, real = [], store.claim
    store.claim = lambda claims: (calls.append(len(claims)), real(claims))[1]
    fetched = [message(str(n)) for n in range(5)]
    claim_batch.claim(fetched)
    assert calls == [5]
    assert [ride_of(one).answer for one in fetched] == [Claimed(starts=0)] * 5
    assert len({ride_of(one).token for one in fetched}) == 5


@pytest.mark.parametrize(
    "given",
    [
        message(redelivered=True),
        message(eta="2030-01-01T00:00:00+00:00"),
        message(expires="2030-01-01T00:00:00+00:00"),
        message(task="unknown"),
        message(task_id=""),
        raw_message(headers={"id": "1", "task": "t"}, payload="no list", delivery_info={}),
        raw_message(headers={"id": "1", "task": "t"}, payload=[], delivery_info=None),
        raw_message(headers=None, payload=[[], {}, {}], delivery_info={}),
        raw_message(headers={"id": "1", "task": ["t"]}, payload=[[], {}, {}], delivery_info={}),
    ],
    ids=[
        "redelivered", "later", "expiring", "no handler", "no id", "no body", "short body",
        "no headers", "odd task",
    ],
)  # fmt: skip
def test_what_may_not_run_now_takes_the_slow_path(claim_batch, given):
    claim_batch.claim([given, fine := message("fine")])
    assert ride_of(given) is None
    assert ride_of(fine).answer == Claimed(starts=0)


@pytest.mark.parametrize(
    "malformed",
    [
        message(timelimit="soon"),
        SimpleNamespace(**{**vars(message()), "payload": [[1], ["no mapping"], {}]}),
        SimpleNamespace(**{**vars(message()), "payload": [[1], {}, ["no mapping"]]}),
        SimpleNamespace(**vars(message()), errors=[ValueError("no gzip")]),
    ],
    ids=["timelimit", "kwargs", "embed", "compression"],
)
def test_what_is_malformed_is_not_claimed_since_it_is_never_run(claim_batch, malformed):
    claim_batch.claim([malformed])
    assert ride_of(malformed) is None


def test_a_store_that_is_away_leaves_the_claim_to_the_run(claim_batch, tenure):
    alone = batch_of(claim_batch.handlers, Away(), tenure)
    alone.claim([given := message()])
    assert ride_of(given).answer is None
    assert sent_as(None) is None


def test_a_claim_whose_answer_was_lost_is_made_once_more_by_its_own_token(
    claim_batch, store, tenure, monkeypatch
):
    """By another one the run would find it in progress for as long as this worker lives."""
    claim, claims = store.claim, []

    def unheard(asked):
        claims.extend(asked)
        claim(asked)
        raise StoreUnavailable("its answer was lost")

    monkeypatch.setattr(store, "claim", unheard)
    claim_batch.claim([given := message()])
    claim_batch.claim([message("2")])
    assert len(claims) == 1, "a store that is away holds up no loop for a while"
    monkeypatch.undo()
    ride, (made,) = ride_of(given), claims
    assert (ride.token, ride.key, ride.answer) == (made.token, made.key, None)
    (again,) = store.claim([replace(made, counted=True)])
    assert isinstance(again, Claimed)
    claim_batch.release([ride])
    (free,) = store.claim([replace(made, token="another")])
    assert isinstance(free, Claimed)


def test_a_duplicate_is_told_what_it_is(claim_batch, store, leases):
    claim_batch.claim([first := message("1")])
    store.settle(ride_of(first).key, ride_of(first).token, Complete(result="7"))
    claim_batch.claim([again := message("1"), other := message("1", args=(2,))])
    assert ride_of(again).answer == AlreadyCompleted(result="7")
    assert ride_of(other).answer == Conflict()


def test_what_is_claimed_while_no_lease_runs_is_nobodys_to_take_over(claim_batch, leases):
    leases.end("me")
    claim_batch.claim([first := message("1")])
    claim_batch.claim([again := message("1")])
    assert ride_of(first).answer == Claimed(starts=0)
    assert ride_of(first).answer.sure_until > time.monotonic()
    assert ride_of(again).answer == InProgress()


def test_what_another_worker_runs_is_in_progress(claim_batch):
    claim_batch.claim([message("1")])
    claim_batch.claim([again := message("1")])
    assert ride_of(again).answer == InProgress()


def test_what_goes_back_unbegun_can_be_claimed_by_another_worker_at_once(claim_batch):
    claim_batch.claim([given := message("1")])
    app = SimpleNamespace(_runtime=SimpleNamespace(claim_batch=claim_batch))
    release_claims(app, [given, message("without a claim")])
    claim_batch.claim([again := message("1")])
    assert ride_of(again).answer == Claimed(starts=0)


def test_claims_that_cannot_be_freed_do_not_stop_the_messages(claim_batch, tenure):
    claim_batch.claim([given := message("1")])
    batch_of(claim_batch.handlers, Away(), tenure).release([ride_of(given)])


def test_the_acknowledgement_is_told_which_claim_ends_with_it(claim_batch):
    claim_batch.claim([given := message("1")])
    ride = ride_of(given)
    left = LeftToAck.of("", LeftCompletion(Complete(result='"kept"'), ("a fact",)))
    claim_batch.leave(given, ride, left, print)
    ending = (ride.key, ride.token, Complete(result='"kept"'), ("a fact",), print)
    assert getattr(given, ENDING) == ending


@pytest.mark.parametrize(
    "answer",
    [
        Claimed(starts=0),
        Claimed(starts=2, sure_until=7.0),
        Claimed(starts=1, steps=True, sure_until=8.0),
        InProgress(),
        Conflict(),
    ],
)
def test_an_answer_reaches_the_child_as_it_is(answer):
    there = answer_in(pickle.loads(pickle.dumps(sent_as(answer))))  # noqa: S301 - our own
    assert there == answer
    assert getattr(there, "sure_until", None) == getattr(answer, "sure_until", None)
    assert answer_in(None) is None


def test_a_completion_reaches_the_parent_with_the_result():
    given = LeftToAck.of("None", LeftCompletion(Complete(result="1"), ("a",)))
    left = pickle.loads(pickle.dumps(given))  # noqa: S301
    assert type(left) is LeftToAck
    assert (str(left), left.kept, left.facts) == ("None", "1", ("a",))


def test_a_body_with_three_names_is_no_body_of_three_parts(claim_batch):
    half = message()
    half.payload = {"args": [1], "kwargs": {}, "id": "1"}
    claim_batch.claim([half])
    assert not hasattr(half, BATCHED_CLAIM)


def test_the_tokens_of_one_fetch_are_drawn_in_one_call_and_all_differ(claim_batch, monkeypatch):
    drawn, urandom = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: (drawn.append(size), urandom(size))[1])
    messages = [message(str(n)) for n in range(20)]
    claim_batch.claim(messages)
    tokens = {ride_of(one).token for one in messages}
    assert len(drawn) == 1
    assert len(tokens) == 20
    assert {len(token) for token in tokens} == {32}
