"""Claims of deliveries: asks the claim store for an event, and whether it is still held (spec D4).

`LastStarts` runs an event that may kill its process beside no other such event. `Results` are
the values and errors of finished events as JSON text, kept for duplicates.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from angzarr.delivery.delivery import (
    Delivery,
    Duplicate,
    Outcome,
    Postponed,
    Refused,
    Superseded,
)
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.errors import DeliveryError, text_of
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    ClaimAnswer,
    Claimed,
    IdempotencyStore,
    InProgress,
    Release,
    SupersededClaim,
)
from angzarr.runtime.cooperative import call_blocking
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.delivery")

#: How long a delivery waits that finds its event in another worker's hands (spec D4).
IN_PROGRESS_WAIT: Final = timedelta(seconds=2)
#: A copy asks again after these before it waits: it was published before its predecessor ended its
#: claim, which takes some milliseconds. In all no more than a slot may sleep.
ASKED_AGAIN: Final = tuple(timedelta(milliseconds=pause) for pause in (5, 15, 30, 50))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimer:
    """Holds a delivery while the store is away. Safe to use from many threads."""

    store: IdempotencyStore
    tenure: Tenure
    retry: RetryUntilAvailable

    def ask(self, delivery: Delivery, claim: Claim) -> ClaimAnswer:
        """The store's answer to *claim*, which may be sent any number of times."""
        for pause in (*(ASKED_AGAIN if delivery.position.hop else ()), None):
            (answer,) = self.retry.until_done(
                lambda: self.tenure.claim(self.store, [claim]),
                what="claim it",
                delivery=delivery,
            )
            if pause is None or not isinstance(answer, InProgress):
                break
            self.retry.clock.sleep(pause)
        return answer

    def ask_all(self, deliveries: Sequence[Delivery]) -> list[ClaimAnswer | None]:
        """The answers for *deliveries* of one owner, asked in one call; None: ask for it alone."""
        answers = self.retry.until_done(
            lambda: self.tenure.claim(self.store, [delivery.claim for delivery in deliveries]),
            what="claim it",
            delivery=deliveries[0],
        )
        return [
            None if delivery.position.hop and isinstance(answer, InProgress) else answer
            for delivery, answer in zip(deliveries, answers, strict=True)
        ]

    def is_sure(self, claimed: Claimed) -> bool:
        """True if `holds` need not ask."""
        return not self.tenure.is_over(claimed.sure_until)

    def holds(self, delivery: Delivery, claimed: Claimed) -> bool:
        """True if *delivery* holds its event still; asks if its lease may have ended since.

        If another delivery claimed the event, it took this worker for dead.
        """

        def ask() -> bool:
            self.tenure.secured(delivery.owner)
            return self.store.owns(delivery.key, delivery.token)

        if self.is_sure(claimed):
            return True
        return self.retry.until_done(ask, what="ask for it", delivery=delivery)

    def release(self, delivery: Delivery, *, counted: bool, last_words: str = "") -> None:
        """End the claim; where the store is away the owner's lease ends it."""
        try:
            release = Release(
                counted=counted, was_counted=not delivery.claimed_with_fetch, last_words=last_words
            )
            call_blocking(partial(self.store.settle, delivery.key, delivery.token, release))
        except Exception as error:  # noqa: BLE001 - the message is given back whatever happens here
            _log.warning("claim_not_released of event %s: %s", delivery.event.id, error)


#: How long an event waits beside whose last start another's runs.
WAIT = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStarts:
    """One at a time in each process."""

    store: IdempotencyStore
    retry: RetryUntilAvailable
    #: Held by the event whose last start runs.
    _running: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, delivery: Delivery) -> Postponed | None:
        """None if *delivery* runs beside no other last start of this process: then `end` it.

        Whatever ran beside an event that kills its process has its starts too. Else it waits as
        for an event in other hands, its claim given back.
        """
        if self._running.acquire(blocking=False):
            return None
        release = Release(counted=False, was_counted=not delivery.claimed_with_fetch)
        self.retry.until_done(
            lambda: self.store.settle(delivery.key, delivery.token, release),
            what="give its claim back",
            delivery=delivery,
        )
        return Postponed(delay=WAIT, why="last start", claimed=False)

    def end(self) -> None:
        """Let the next one begin."""
        self._running.release()


#: Kept as the result of what was skipped. It is no JSON: a release that does not know it takes it
#: for a result that was not kept.
SKIPPED: Final = "skipped"

#: A larger result is not kept; a duplicate of its event then gets None.
MAX_RESULT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Writes and reads them with the serializer of the result backend."""

    dumps: Callable[[Any], str]
    loads: Callable[[str], Any]

    def write(self, value: Any) -> str | None:
        """*value* as text; None for a value that is too large or not JSON, and so not kept."""
        if value is None:
            return "null"
        try:
            text = self.dumps(value)
        except Exception as error:  # noqa: BLE001 - the event is handled, whatever its value is
            _log.warning("result_not_kept: a duplicate of this event will not get it: %s", error)
            return None
        return text if len(text) <= MAX_RESULT else None

    def duplicate(self, text: str) -> Duplicate:
        """The duplicate of an event of which `write` wrote *text*, or of a skipped one."""
        if text == SKIPPED:
            return Duplicate(kept=False, skipped=True)
        try:
            return Duplicate(value=self.loads(text))
        except Exception as error:  # text of another release is not a reason to hold
            if is_machine_fault(error):
                raise  # it goes back, and its followers get the result later
            _log.warning("result_unreadable: a duplicate goes without it: %s", error)
            return Duplicate(kept=False)

    def outcome_of(self, answer: ClaimAnswer | None) -> Outcome | None:
        """The outcome of a delivery that was answered so, and holds no claim.

        None: its id was used before for another body.
        """
        match answer:
            case AlreadyCompleted(result=None):
                return Duplicate(kept=False)
            case AlreadyCompleted(result=str(result)):
                return self.duplicate(result)
            case AlreadyFailed(error=error):
                return Refused(error=self.read_error(error))
            case SupersededClaim():
                return Superseded()
            case InProgress():
                return Postponed(delay=IN_PROGRESS_WAIT, why="in progress", claimed=False)
            case _:
                return None

    @staticmethod
    def write_error(error: BaseException, shown: str = "") -> str:
        """The text of *error* for a duplicate, with its message as *shown* in its letter."""
        message = (shown or text_of(error))[:1000]
        return json.dumps({"type": type(error).__name__, "message": message})

    @staticmethod
    def read_error(text: str) -> DeliveryError:
        """An error that tells what `write_error` wrote, in this or another release."""
        try:
            found = dict(json.loads(text))
        except (ValueError, TypeError):
            found = {}
        return DeliveryError(
            f"failed before with {found.get('type', 'an error')}: {found.get('message', '')}"
        )
