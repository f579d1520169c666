"""Claims made for a whole fetch, and completions that go with the acknowledgement.

Where broker and claim store are one Redis, a worker claims the messages of one fetch in one call,
and the step that acknowledges a message completes its claim. Neither costs a round trip of its own.
A message that is redelivered, late, or not yet due is claimed by the process that runs it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery import Celery

from angzarr.adapters.celery.message_check import check_headers, checked_body
from angzarr.adapters.celery.worker.message_limits import take_in
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.delivery import fingerprint_of, position_of
from angzarr.delivery.handlers import Handlers
from angzarr.errors import Unavailable
from angzarr.events import headers as names
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.idempotency import (
    Claim,
    ClaimAnswer,
    Claimed,
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

#: Makes what the transport takes to end a claim: record key, token, ending, called if fenced.
MakeEnding = Callable[[str, str, Complete, Callable[[], None]], Any]


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

    __slots__ = ("kept",)
    kept: str | None

    @classmethod
    def of(cls, text: str | None, completion: Complete) -> LeftToAck:
        """*text* with the result that *completion* keeps for duplicates."""
        left = cls(text or "")
        left.kept = completion.result
        return left


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """Knows whose claims they are and where they live."""

    handlers: Handlers
    store: IdempotencyStore
    tenure: Tenure
    owner: str
    make_ending: MakeEnding
    bounds: Bounds
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def claim(self, messages: Sequence[Any]) -> None:
        """Claim what of *messages* may ride, in one call; the rest is claimed when it runs."""
        boarding = [(message, claim) for message in messages for claim in self._claims(message)]
        if not boarding:
            return
        answers: Sequence[ClaimAnswer | None]
        try:
            answers = self.tenure.claim(self.store, [claim for _, claim in boarding])
        except Unavailable as error:
            if self.seldom.now("made"):
                _log.warning("batch_claim_failed: claiming one by one (%s)", error)
            answers = [None] * len(boarding)
        for (message, claim), answer in zip(boarding, answers, strict=True):
            setattr(message, BATCHED_CLAIM, BatchedClaim(claim.token, claim.key, answer))

    def release(self, rides: Sequence[BatchedClaim]) -> None:
        """Free the claims of what goes back to the broker and was not begun.

        While the store is away they stay, and end with the owner's lease.
        """
        try:
            for ride in rides:
                if ride.answer is None or isinstance(ride.answer, Claimed):
                    self.store.settle(ride.key, ride.token, Release(was_counted=False))
        except Unavailable as error:
            if self.seldom.now("freed"):
                _log.warning("claims_not_freed: they end with this worker's lease (%s)", error)

    def leave(
        self, message: Any, ride: BatchedClaim, kept: str | None, on_fenced: Callable[[], None]
    ) -> None:
        """Let the acknowledgement of *message* complete the claim of *ride*."""
        ending = self.make_ending(ride.key, ride.token, Complete(result=kept), on_fenced)
        setattr(message, ENDING, ending)

    def _claims(self, message: Any) -> Iterator[Claim]:
        """Yield the claim of *message*, if it may ride."""
        try:
            take_in(message, self.bounds)
            if self._may_ride(message):
                yield self._claim(message)
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

    def _claim(self, message: Any) -> Claim:
        found = message.headers
        check_headers(found)  # a malformed message never runs, so its claim would never end
        args, kwargs, _ = checked_body(message.payload)
        position = position_of(found)
        return Claim(
            key=key_for(found["task"], names.event_id_of(found)),
            token=os.urandom(16).hex(),
            owner=self.owner,
            position=position,
            fingerprint=fingerprint_of(position, args, kwargs),
            counted=False,
        )


def release_claims(app: Celery, messages: Sequence[Any]) -> None:
    """Free the claims that *messages* of an app ride with, if any do."""
    rides = [
        ride for message in messages if (ride := getattr(message, BATCHED_CLAIM, None)) is not None
    ]
    if rides and (batch := runtime_of(app).claim_batch) is not None:
        batch.release(rides)
