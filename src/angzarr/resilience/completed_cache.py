"""A small cache of completed keys in front of a claim store: duplicates without a round trip.

Only what can never change is kept: completed records, for a short while, and only for a claim
with the very replay number and fingerprint that was completed. Pending, waiting and failed
records are never answered from here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from angzarr.clock import Clock, SystemClock
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    Claim,
    ClaimAnswer,
    Claimed,
    Complete,
    Ending,
    IdempotencyStore,
)

#: Results longer than this many characters are left to the store.
MAX_RESULT = 4096


class _Body(NamedTuple):
    """What must be equal for a claim to get the answer another one got."""

    key: str
    replay: int
    fingerprint: str


class _Done(NamedTuple):
    answer: AlreadyCompleted
    until: datetime


class CompletedCache:
    """An IdempotencyStore that asks *store* for all but recently completed keys.

    Holds at most *size* keys, each for *life* or for the record's own life if that is shorter.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        *,
        size: int = 10_000,
        life: timedelta = timedelta(minutes=1),
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._size = size
        self._life = life
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._done: OrderedDict[_Body, _Done] = OrderedDict()
        #: Which body each claim of ours was for, by token: settle names the token only.
        self._held: OrderedDict[str, _Body] = OrderedDict()

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer completed keys from memory and send the rest to the store in one call."""
        bodies = [_body_of(claim) for claim in claims]
        with self._lock:
            known = [
                None if claim.anew else self._known(body)
                for claim, body in zip(claims, bodies, strict=True)
            ]
        unknown = [index for index, answer in enumerate(known) if answer is None]
        answers: list[Any] = list(known)
        if unknown:
            fresh = self._store.claim([claims[index] for index in unknown])
            with self._lock:
                for index, answer in zip(unknown, fresh, strict=True):
                    answers[index] = answer
                    self._learn(bodies[index], claims[index].token, answer)
        return answers

    def owns(self, key: str, token: str, /) -> bool:
        """Ask the store: a fence is never answered from memory."""
        return self._store.owns(key, token)

    def settle(self, key: str, token: str, ending: Ending, /) -> bool:
        """Settle in the store, and remember what was completed there."""
        settled = self._store.settle(key, token, ending)
        with self._lock:
            body = self._held.pop(token, None)
            if settled and body and body.key == key and isinstance(ending, Complete):
                life = min(self._life, ending.life)
                self._keep(body, AlreadyCompleted(result=ending.result), life)
        return settled

    # -- with the lock held ----------------------------------------------------------------------

    def _known(self, body: _Body) -> AlreadyCompleted | None:
        done = self._done.get(body)
        if done is None:
            return None
        if done.until <= self._clock.now():
            del self._done[body]
            return None
        self._done.move_to_end(body)
        return done.answer

    def _learn(self, body: _Body, token: str, answer: ClaimAnswer) -> None:
        if isinstance(answer, Claimed):
            self._done.pop(body, None)  # it may have been claimed anew
            self._held[token] = body
            _trim(self._held, self._size)
        elif isinstance(answer, AlreadyCompleted):
            self._keep(body, answer, self._life)

    def _keep(self, body: _Body, answer: AlreadyCompleted, life: timedelta) -> None:
        if len(answer.result or "") > MAX_RESULT:
            return
        self._done[body] = _Done(answer, self._clock.now() + life)
        self._done.move_to_end(body)
        _trim(self._done, self._size)


def _body_of(claim: Claim) -> _Body:
    return _Body(claim.key, claim.position.replay, claim.fingerprint)


def _trim(entries: OrderedDict[_Body, _Done] | OrderedDict[str, _Body], size: int) -> None:
    """Drop the oldest: a held token may belong to a delivery that another process settled."""
    while len(entries) > size:
        entries.popitem(last=False)
