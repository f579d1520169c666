"""Claims as one process knows them: its owner's lease, a duty of the fleet, completed keys.

Claims hold while the lease of their owner runs. A process that stood still for
longer, or whose store was away for longer, may have lost them: before it runs what it claimed, it
has to ask. `Tenure` remembers until when the lease runs for certain, so that it need not ask each
time.

`FleetDuty` is a claim as any event's: work that one worker does for all of the fleet. If that dies
or loses its lease, another worker follows.

`CompletedCache` answers duplicates without a round trip. It keeps only what can never change:
completed records, for a short while, for claims with the same replay number and fingerprint.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from angzarr.clock import Clock, SystemClock
from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    Ending,
    IdempotencyStore,
    OwnerLeases,
    Release,
    key_for,
)
from angzarr.runtime.fast_init import fast_replace

#: How long an owner counts as alive after its last sign of life.
LEASE: Final = timedelta(seconds=8)


class Tenure:
    """One for each process of a worker. Safe to use from threads.

    *monotonic* counts for all processes of a machine from the same moment, as `time.monotonic`
    does: one process may judge by it what another one found.
    """

    def __init__(
        self,
        leases: OwnerLeases,
        *,
        span: timedelta = LEASE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        #: How long a lease runs after each renewal.
        self.span = span
        self._monotonic = monotonic
        self._known = ("", float("-inf"))

    def renew(self, owner: str) -> float:
        """Renew *owner*'s lease and return until when it runs at least; raises StoreUnavailable."""
        began = self._monotonic()  # the store counts from when it hears of it, which is later
        self._leases.renew(owner, self.span)
        until = began + self.span.total_seconds()
        self._known = (owner, until)
        return until

    def end(self, owner: str) -> None:
        """End *owner*'s lease; raises StoreUnavailable."""
        self._known = ("", float("-inf"))
        self._leases.end(owner)

    def secured(self, owner: str) -> float:
        """Until when *owner*'s lease runs at least; renew it if that is soon, or unknown.

        Mostly no round trip; raises StoreUnavailable.
        """
        known, until = self._known
        left = until - self._monotonic()
        if known == owner and left * 2 >= self.span.total_seconds():
            return until
        return self.renew(owner)

    def sure_until(self, owner: str) -> float:
        """Until when *owner*'s lease runs at least, as far as is known, without asking."""
        known, until = self._known
        return until if known == owner else float("-inf")

    def is_sure(self, owner: str) -> bool:
        """True if *owner*'s lease runs now, as far as is known, without asking."""
        return not self.is_over(self.sure_until(owner))

    def claim(self, store: IdempotencyStore, claims: Sequence[Claim]) -> list[ClaimAnswer]:
        """*store*'s answers to *claims* of one owner, whose lease is secured before.

        A claim made so cannot be taken for a dead worker's; each says until when that is certain.
        Raises StoreUnavailable.
        """
        sure_until = self.secured(claims[0].owner)
        return [
            fast_replace(answer, sure_until=sure_until) if isinstance(answer, Claimed) else answer
            for answer in store.claim(claims)
        ]

    def is_over(self, until: float) -> bool:
        """True if a lease that ran *until* then may have ended since."""
        return self._monotonic() >= until


#: Stands in its keys where claims of events name their handler.
_HANDLER = "angzarr.fleet_duty"


class FleetDuty:
    """The duty *name*, asked for by *owner*. For one thread.

    While the claim store is away the worker that had the duty keeps it: it is for work that may be
    done twice, and that must be done.
    """

    def __init__(self, tenure: Tenure, store: IdempotencyStore, owner: str, name: str) -> None:
        self._tenure = tenure
        self._store = store
        self._claim = Claim(
            key=key_for(_HANDLER, name), token=uuid.uuid4().hex, owner=owner, counted=False
        )
        self._ours = False

    def is_ours(self) -> bool:
        """Take the duty if no living worker has it; return whether it is this one's."""
        with suppress(StoreUnavailable):
            [answer] = self._tenure.claim(self._store, [self._claim])
            self._ours = isinstance(answer, Claimed)
        return self._ours

    def end(self) -> None:
        """Let another worker take the duty at once; if the store is away, once the lease ends."""
        if self._ours:
            self._ours = False
            with suppress(StoreUnavailable):
                self._store.settle(self._claim.key, self._claim.token, Release(was_counted=False))


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

    def owns(self, key: str, token: str, /, facts: Sequence[str] = ()) -> bool:
        """Ask the store: a fence is never answered from memory."""
        return self._store.owns(key, token, facts)

    def settle(self, key: str, token: str, ending: Ending, /, facts: Sequence[str] = ()) -> bool:
        """Settle in the store, and remember the keys completed there."""
        settled = self._store.settle(key, token, ending, facts)
        with self._lock:
            self._learn_end(ClaimEnd(key, token, ending), settled)
        return settled

    def settle_all(self, ends: Sequence[ClaimEnd], /) -> list[bool]:
        """Settle all in the store in one call, and remember the keys completed there."""
        settled = self._store.settle_all(ends)
        with self._lock:
            for end, done in zip(ends, settled, strict=True):
                self._learn_end(end, done)
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

    def _learn_end(self, end: ClaimEnd, settled: bool) -> None:  # noqa: FBT001
        body, ending = self._held.pop(end.token, None), end.ending
        if settled and body and body.key == end.key and isinstance(ending, Complete):
            life = min(self._life, ending.life)
            self._keep(body, AlreadyCompleted(result=ending.result), life)

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
