"""Claims made for a whole fetch, and completions made in batches before the acknowledgement.

A worker claims the messages of one fetch in one call. Where broker and claim store are one Redis,
the step that acknowledges a message completes its claim. Elsewhere the completions of several
messages are made in one call, and each message is acknowledged after it.
A message that is redelivered, late, or not yet due is claimed by the process that runs it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from celery import Celery

from angzarr.adapters.celery.claim_ender import ClaimEnder, EndingClaim
from angzarr.adapters.celery.message_check import check_headers, checked_body
from angzarr.adapters.celery.worker.message_limits import take_in
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.completions import LeftCompletion
from angzarr.delivery.delivery import fingerprint_of, position_of
from angzarr.delivery.handlers import Handlers
from angzarr.errors import Unavailable
from angzarr.events import headers as names
from angzarr.payloads.holders import PayloadHold
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.idempotency import (
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    IdempotencyStore,
    Release,
    key_for,
)
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.json_bounds import Bounds

_log = logging.getLogger("angzarr.worker")

#: The attribute of a kombu message for its `BatchedClaim`, and the one for a claim's end.
BATCHED_CLAIM, ENDING = "angzarr_ride", "angzarr_ending"
#: Headers of a message that may not run at once, or not for the first time (every copy has the
#: last): its claim would block others in the meantime.
_LATER = ("eta", "expires", names.WAITED_FOR, names.ATTEMPT)

#: Seconds for which a store that is away is not asked for a whole fetch: that holds up the loop,
#: and each run claims by itself meanwhile.
_AWAY_FOR: Final = 5.0

#: Bytes of a token.
_TOKEN: Final = 16

#: Seconds that messages wait for their claims to be freed before they go back all the same.
FREED_WITHIN: Final = 2.0

#: Makes what the transport takes to end a claim: record key, token, ending, lines of facts, called
#: if fenced.
MakeEnding = Callable[[str, str, Complete, Sequence[str], Callable[[], None]], Any]


class BatchedClaim(NamedTuple):
    """A claim made when its message was fetched, and the answer.

    None: the answer was lost, and the claim may exist. The run then claims by the same token;
    by another one it would find the event in progress for as long as this worker lives.
    """

    token: str
    key: str
    answer: ClaimAnswer | None


class LeftToAck(str):
    """A result as text, of a run that left its completion to the acknowledgement."""

    __slots__ = ("facts", "kept", "releases")
    kept: str | None
    facts: tuple[str, ...]
    releases: PayloadHold | None

    @classmethod
    def of(cls, text: str | None, completion: LeftCompletion) -> LeftToAck:
        """*text* with the result that *completion* keeps for duplicates, its facts, its body."""
        left = cls(text or "")
        left.kept = completion.completion.result
        left.facts = completion.facts
        left.releases = completion.completion.releases
        return left

    @property
    def completion(self) -> Complete:
        """The completion that was left."""
        return Complete(result=self.kept, releases=self.releases)


@dataclass(slots=True)
class ClaimBatch:
    """Knows whose claims they are and where they live."""

    handlers: Handlers
    store: IdempotencyStore
    tenure: Tenure
    owner: str
    bounds: Bounds
    #: None: claims do not end in the acknowledgement, but before it.
    make_ending: MakeEnding | None = None
    seldom: LogThrottle = field(default_factory=LogThrottle)
    monotonic: Callable[[], float] = time.monotonic
    ender: ClaimEnder = field(init=False)
    _ask_from: float = float("-inf")

    def __post_init__(self) -> None:
        self.ender = ClaimEnder(self.store)

    def claim(self, messages: Sequence[Any]) -> None:
        """Claim what of *messages* may ride, in one call; the rest is claimed when it runs."""
        if self.monotonic() < self._ask_from:
            return
        drawn = os.urandom(_TOKEN * len(messages))  # in one call: each lets other threads go first
        boarding = [
            (message, claim)
            for number, message in enumerate(messages)
            for claim in self._claims(message, drawn[number * _TOKEN :][:_TOKEN].hex())
        ]
        if not boarding:
            return
        answers: Sequence[ClaimAnswer | None]
        try:
            answers = self.tenure.claim(self.store, [claim for _, claim in boarding])
        except Unavailable as error:
            self._ask_from = self.monotonic() + _AWAY_FOR
            if self.seldom.now("made"):
                _log.warning("batch_claim_failed: claiming one by one (%s)", error)
            answers = [None] * len(boarding)
        for (message, claim), answer in zip(boarding, answers, strict=True):
            setattr(message, BATCHED_CLAIM, BatchedClaim(claim.token, claim.key, answer))

    def release(self, rides: Sequence[BatchedClaim]) -> None:
        """Free the claims of what goes back to the broker and was not begun.

        While the store is away they are freed once it is back, or end with the owner's lease.
        """
        ends = [
            ClaimEnd(ride.key, ride.token, Release(was_counted=False))
            for ride in rides
            if ride.answer is None or isinstance(ride.answer, Claimed)
        ]
        if ends:
            # Behind the completions that wait: a claim of one that was handled is not freed.
            self.ender.end(*(EndingClaim(end, _nothing, _nothing) for end in ends))
            self.ender.wait(FREED_WITHIN)

    def leave(
        self, message: Any, ride: BatchedClaim, left: LeftToAck, on_fenced: Callable[[], None]
    ) -> bool:
        """Let the acknowledgement of *message* complete the claim of *ride*, if it can.

        False: it cannot. Then `complete` the claim, and acknowledge behind it.
        """
        if self.make_ending is None:
            return False
        made = (ride.key, ride.token, left.completion, left.facts, on_fenced)
        ending = self.make_ending(*made)
        setattr(message, ENDING, ending)
        return True

    def complete(
        self,
        ride: BatchedClaim,
        left: LeftToAck,
        then: Callable[[bool], object],
        refuse: Callable[[Exception], object],
    ) -> None:
        """Complete the claim of *ride* with others; see `EndingClaim` for *then* and *refuse*."""
        end = ClaimEnd(ride.key, ride.token, left.completion, left.facts)
        self.ender.end(EndingClaim(end, then, refuse))

    def _claims(self, message: Any, token: str) -> Iterator[Claim]:
        """Yield the claim of *message*, if it may ride."""
        try:
            take_in(message, self.bounds)
            if self._may_ride(message):
                yield self._claim(message, token)
        except Exception as error:  # noqa: BLE001 - the delivery will report the fault
            _log.debug("claim_not_made: %r", error)

    def _may_ride(self, message: Any) -> bool:
        found = message.headers
        return (
            self.handlers.get(found["task"]) is not None
            and bool(found["id"])
            and not message.delivery_info.get("redelivered")
            and not any(map(found.get, _LATER))
            and not getattr(message, "errors", None)  # kombu could not unpack it
        )

    def _claim(self, message: Any, token: str) -> Claim:
        found = message.headers
        check_headers(found)  # a malformed message never runs, so its claim would never end
        args, kwargs, _ = checked_body(message.payload)
        position = position_of(found)
        return Claim(
            key=key_for(found["task"], names.event_id_of(found)),
            token=token,
            owner=self.owner,
            position=position,
            fingerprint=fingerprint_of(position, args, kwargs, found),
            counted=False,
        )


def release_claims(app: Celery, messages: Sequence[Any]) -> None:
    """Free the claims that *messages* of an app ride with, if any do."""
    rides = [
        ride for message in messages if (ride := getattr(message, BATCHED_CLAIM, None)) is not None
    ]
    if rides:
        runtime_of(app).claim_batch.release(rides)


def _nothing(_what: object) -> None:
    """Hear no answer: a claim that is not ours any more need not be freed."""
