"""Every error this package raises, under one root. No error here may carry a secret in its text.

AngzarrError
├── ConfigurationError              found at start; the text names the cause and the cure
│   ├── UnsafeSetting               a Celery setting under which messages would be lost
│   ├── MissingExtra                an optional dependency is not installed
│   ├── DuplicateHandler            two functions registered under one task name
│   ├── ConfigurationVersionMissing a version that an event is pinned to, or that was named
│   ├── ConfigurationVersionExists  a version that never changes would
│   ├── ConfigurationUnfit          a value that is no JSON, or breaks its schema; a bad name
│   └── InvalidDomainName           not ``[a-z][a-z0-9.-]*``, or two domains share a name
├── PublishError                    not everything was sent, for certain
│   ├── NoSubscriber                no handler takes this event type
│   ├── UnserializableEvent         the event cannot be written as JSON
│   ├── EventDoesNotFit             a handler known here could not read it
│   └── PublishIncomplete           some handlers' messages were not confirmed
├── Unavailable                     a server is away; the caller holds and tries again
│   ├── BrokerUnavailable
│   ├── StoreUnavailable
│   ├── LedgerUnavailable
│   ├── DeadLetterQueueUnavailable
│   └── PayloadStoreUnavailable
│       └── PayloadsBusy            too many are open at once at this door
├── Unroutable                  a message came back: no queue takes it
├── CommandError                    a command that was not carried out
│   ├── InvalidRoot                 a root or edition that no store can keep
│   ├── UnknownCommand              no aggregate takes it
│   ├── SequenceConflictError       stale; a command made from the current book may succeed
│   ├── CommandAbortedError         stale, and refused for good
│   ├── ChainTooDeep                events and commands that answer each other in a circle
│   └── NotAnEvent                  what a method answered with is no event, and nothing else either
├── RebuildError                    a rebuild that cannot go on; what it has done is kept
├── DecodeError                     bytes that are not what they claim to be
│   └── BookUnreadable              an event or a snapshot of a book does not fit its type
├── PayloadGone                     not in the payload store: in vain however often it is fetched
│   └── PayloadElsewhere            its reference leads out of the store: nothing was read
├── PayloadCorrupt                  not of the size or SHA-256 that its reference names; the same
├── PayloadKeyMissing               encrypted with a key that this app does not have
├── PayloadTooLarge                 not opened for people; a worker takes it
├── InvalidCost                     an amount, a currency or units that no report could add up
├── WebhookError                    a receiver did not take what was posted to it
├── DeliveryError                   why a delivery ended as a dead letter
│   ├── MaxRetriesExceededError
│   ├── PoisonError
│   ├── CircuitOpenError
│   ├── RetryBudgetSpentError
│   ├── CostBudgetSpentError        the money of a tenant or a handler is spent
│   ├── LimitExceededError
│   ├── IdempotencyConflictError
│   ├── LetterTooLarge
│   ├── RevokedError
│   ├── ExpiredError
│   └── CommandRejectedError
├── GivenBack                       the worker stops; the message goes back to the broker
│   └── NotYet                      a server is away, and its caller does not wait for it
└── Directive                       raised by a handler to say the outcome outright
    ├── GiveUp                      never retry: a dead letter with this reason
    │   ├── SequenceMismatch        a stale command that a person must look at
    │   └── CompensationFailed      nothing undoes what led to a rejected command
    ├── RetryLater                  retry after this delay
    ├── Postpone                    run it later without using an attempt
    └── Skip                        a business refusal: recorded, not retried
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any


def text_of(error: BaseException) -> str:
    """What *error* says; an error that cannot even say it must not stop its letter."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return f"a {type(error).__name__} that cannot be printed"


class AngzarrError(Exception):
    """The root of every error this package raises."""


class ConfigurationError(AngzarrError):
    """A setting that cannot work, found before anything runs."""


class UnsafeSetting(ConfigurationError):
    """A setting under which messages would be lost."""


class MissingExtra(ConfigurationError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; it comes with: pip install 'angzarr-workers[{extra}]'"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.package, self.extra)


class DuplicateHandler(ConfigurationError):
    """Two different functions registered under one task name."""


class ConfigurationVersionMissing(ConfigurationError):
    """A version that is not in its store, or a pin that cannot be read; no other stands in."""


class ConfigurationVersionExists(ConfigurationError):
    """A version of that name is there and has another body: versions never change."""


class ConfigurationUnfit(ConfigurationError):
    """What cannot be put: it is no JSON, breaks its schema, or has a name that cannot be kept."""


class InvalidDomainName(ConfigurationError):
    """A domain name that no dead-letter backend could carry unchanged."""


class PublishError(AngzarrError):
    """An event that was not sent, or not to everyone."""


class NoSubscriber(PublishError):
    """No handler takes this event type."""


class UnserializableEvent(PublishError):
    """An event or argument that cannot be written as JSON."""


class EventDoesNotFit(PublishError):
    """Data that a handler known here could never read, or no place with one that keeps order."""


class PublishIncomplete(PublishError):
    """Some handlers' messages were not confirmed; publish again with `event_id`, it is safe."""

    def __init__(self, event_id: str, missing: Sequence[str], cause: str = "") -> None:
        self.event_id = event_id
        self.missing = tuple(missing)
        self.cause = cause
        super().__init__(
            f"event {event_id} was not sent to {', '.join(self.missing)}"
            + (f" ({cause})" if cause else "")
            + f"; publish it again with id={event_id!r}: handlers that have it will not run twice"
        )

    def __reduce__(self) -> tuple[type[PublishIncomplete], tuple[str, tuple[str, ...], str]]:
        return type(self), (self.event_id, self.missing, self.cause)


class Unavailable(AngzarrError):
    """A server that is away for now: the caller holds its message and tries again."""


def is_absence(error: BaseException) -> bool:
    """True if *error* says that a server or the way to it is away: waiting helps.

    A refusal for good is none, nor is an unforeseen error: it may be ours and come back
    for ever.
    """
    if isinstance(error, Unavailable):
        return not getattr(error, "refused", False) or getattr(error, "passing", False)
    return isinstance(error, OSError)


class BrokerUnavailable(Unavailable, PublishError):
    """The broker did not confirm a publish; the message may be on it all the same.

    `event_id` is that of the one event that was to be sent: sending it again with it is safe.
    `refused`: the broker is there, and will not have this message. `passing`: it may later, as
    its queue is full.
    """

    def __init__(
        self,
        message: str = "",
        event_id: str | None = None,
        refused: bool = False,  # noqa: FBT001, FBT002 - an error is pickled by its arguments
        passing: bool = False,  # noqa: FBT001, FBT002 - an error is pickled by its arguments
    ) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.refused = refused
        self.passing = passing

    def __reduce__(self) -> tuple[type[BrokerUnavailable], tuple[str, str | None, bool, bool]]:
        return type(self), (str(self), self.event_id, self.refused, self.passing)


class Unroutable(AngzarrError):
    """A message came back: no queue takes it. Mixed into what the broker's client raises then."""


class StoreUnavailable(Unavailable):
    """The claim store did not answer."""


class LedgerUnavailable(Unavailable):
    """The ledger's database did not answer."""


class DeadLetterQueueUnavailable(Unavailable):
    """The dead-letter queue did not confirm."""


class PayloadStoreUnavailable(Unavailable):
    """The store of payloads did not answer, or refused for now."""


class PayloadsBusy(PayloadStoreUnavailable):
    """So many payloads are open for people at once that this one must wait."""


class RebuildError(AngzarrError):
    """A rebuild of a projection that cannot begin or go on; what it has done so far is kept."""


class DecodeError(AngzarrError):
    """Bytes or data that are not what they claim to be."""


class BookUnreadable(DecodeError):
    """An event or a snapshot in a book that does not fit what the aggregate declares."""


class CommandError(AngzarrError):
    """A command that was not carried out."""


class InvalidRoot(CommandError):
    """A root or an edition that no store can keep."""


class UnknownCommand(CommandError):
    """A command that no aggregate known here takes."""


class SequenceConflictError(CommandError):
    """The aggregate is elsewhere than a command expects (FAILED_PRECONDITION).

    `book` is what it is now, where that is known: a command made from it may succeed.
    """

    def __init__(self, message: str, book: Any = None) -> None:
        super().__init__(message)
        self.book = book


class CommandAbortedError(CommandError):
    """The aggregate is elsewhere than a command expects, and that is final (ABORTED).

    `review`: a dead letter keeps it for a person. `expected` and `actual` are None where the
    other side did not say them.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: int | None = None,
        actual: int | None = None,
        review: bool = False,
    ) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual
        self.review = review


class ChainTooDeep(CommandError):
    """An event or command with more before it in its chain than the settings allow."""


class NotAnEvent(CommandError):
    """What a method answered with is no event, nor anything else that it may answer with."""


class PayloadGone(AngzarrError):
    """A payload that is not in its store: fetching it again is in vain."""


class PayloadElsewhere(PayloadGone):
    """A reference that leads out of the payload store of this app: nothing was read."""


class PayloadCorrupt(AngzarrError):
    """A payload that is not what its reference names: fetching it again is in vain."""


class PayloadKeyMissing(AngzarrError):
    """A payload that is encrypted with a key which this app does not have."""


class PayloadTooLarge(AngzarrError):
    """A payload of more bytes than are opened for people."""


class InvalidCost(AngzarrError):
    """A cost that no report could add up: its amount, its currency or its units."""


class WebhookError(AngzarrError):
    """A receiver did not take what was posted; `ill` says that it may later, else it never will.

    `status` is what it answered, None if it did not; `retry_after` how long it wants to be left
    alone.
    """

    def __init__(
        self,
        message: str,
        ill: bool,  # noqa: FBT001 - an error is pickled by its arguments
        status: int | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.ill = ill
        self.status = status
        self.retry_after = retry_after

    def __reduce__(
        self,
    ) -> tuple[type[WebhookError], tuple[str, bool, int | None, timedelta | None]]:
        return type(self), (str(self), self.ill, self.status, self.retry_after)


class DeliveryError(AngzarrError):
    """Why a delivery ended as a dead letter, where no handler's error says it."""


class MaxRetriesExceededError(DeliveryError):
    """All attempts of the policy are used up."""


class PoisonError(DeliveryError):
    """Started and never finished too often: it kills its worker."""


class CircuitOpenError(DeliveryError):
    """A breaker refused the call; `retry_after` is the time until it lets a probe through.

    Who waits for it should spread over `spread` behind it, so that none stampede. `ramping`: it is
    closed again, and lets a growing share of the calls through.
    """

    def __init__(
        self,
        name: str,
        retry_after: timedelta,
        spread: timedelta = timedelta(0),
        ramping: bool = False,  # noqa: FBT001, FBT002 - an error is pickled by its arguments
    ) -> None:
        super().__init__(f"breaker {name!r} is open for {retry_after.total_seconds():.1f} s more")
        self.name = name
        self.retry_after = retry_after
        self.spread = spread
        self.ramping = ramping

    def __reduce__(self) -> tuple[type[CircuitOpenError], tuple[str, timedelta, timedelta, bool]]:
        return type(self), (self.name, self.retry_after, self.spread, self.ramping)


class RetryBudgetSpentError(DeliveryError):
    """The retries of a dependency cost more than its budget, for longer than an event may wait."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the retry budget of {name!r} is spent")
        self.name = name

    def __reduce__(self) -> tuple[type[RetryBudgetSpentError], tuple[str]]:
        return type(self), (self.name,)


class CostBudgetSpentError(DeliveryError):
    """What a tenant or a handler may spend in a day or a month is spent; *said* tells how much."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(f"the cost budget {name!r} is spent: {said}")
        self.name = name
        self.said = said

    def __reduce__(self) -> tuple[type[CostBudgetSpentError], tuple[str, str]]:
        return type(self), (self.name, self.said)


class LimitExceededError(DeliveryError):
    """A limit was reached, each time anew, for longer than an event may wait."""

    def __init__(self, name: str) -> None:
        super().__init__(f"limit {name!r} is reached")
        self.name = name

    def __reduce__(self) -> tuple[type[LimitExceededError], tuple[str]]:
        return type(self), (self.name,)


class IdempotencyConflictError(DeliveryError):
    """One idempotency key, two different bodies."""


class LetterTooLarge(DeliveryError):
    """No dead-letter queue takes it: its message is kept, and tried again from time to time."""


class RevokedError(DeliveryError):
    """Somebody revoked the task before it was finished."""


class ExpiredError(DeliveryError):
    """The message arrived after the time that its publisher set for it."""


class CommandRejectedError(DeliveryError):
    """A domain rule refused a command."""


class GivenBack(AngzarrError):
    """The worker is stopping while it holds a message: the broker gets it back, nothing is lost."""


class NotYet(GivenBack):
    """A server is away, and who asked cannot wait here: the whole delivery is tried again later."""


class Directive(AngzarrError):
    """Raised by a handler to say the outcome outright instead of leaving it to the taxonomy."""


class GiveUp(Directive):
    """Never retry: dead-letter the event with *reason*."""

    #: Why the letter says that it was written.
    letter_reason = "refused"
    #: The id of its letter once that is confirmed, and how often what follows it was refused.
    put_letter = ""
    refusals = 0

    def afterwards(self) -> None:
        """Do what is to follow the letter, once it is confirmed; may be called again."""


class CompensationFailed(GiveUp):
    """A rejected command whose consequences were not undone, or that ends its chain (spec C5)."""

    letter_reason = "compensation"

    def __init__(self, reason: str, then: Callable[[], None] = lambda: None) -> None:
        super().__init__(reason)
        self._then = then

    def afterwards(self) -> None:
        """Escalate, abort or emit, as the flags say."""
        self._then()

    def __reduce__(self) -> tuple[type[CompensationFailed], tuple[str]]:
        return type(self), (str(self),)


class SequenceMismatch(GiveUp):
    """A command that expects its aggregate elsewhere, and that a person must look at (spec C2)."""

    letter_reason = "sequence_mismatch"

    def __init__(self, expected: int, actual: int, strategy: int) -> None:
        super().__init__(f"expected sequence {expected}, the aggregate is at {actual}")
        self.expected = expected
        self.actual = actual
        self.strategy = strategy

    def __reduce__(self) -> tuple[type[SequenceMismatch], tuple[int, int, int]]:
        return type(self), (self.expected, self.actual, self.strategy)


class Skip(Directive):
    """A business refusal: recorded as a fact, acknowledged, not retried."""


class _Later(Directive):
    """A directive with a delay."""

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked to be run later")
        self.reason = reason
        self.delay = timedelta(seconds=delay) if isinstance(delay, int | float) else delay
        if self.delay is not None and self.delay < timedelta(0):
            msg = f"{type(self).__name__} takes a delay of 0 s or more, not {self.delay}"
            raise ValueError(msg)

    def __reduce__(self) -> tuple[type[_Later], tuple[timedelta | None, str]]:
        return type(self), (self.delay, self.reason)


class RetryLater(_Later):
    """Run the event again after *delay* (seconds or a timedelta; None: the policy's delay).

    It uses an attempt like any other failure; when none is left the event is dead-lettered.
    *max_attempts* overrides the policy's number of runs (0: no end); *cause* is the error to show;
    *body* replaces the message's body; *requeued*: the next run finds itself ``redelivered``.
    """

    def __init__(
        self,
        delay: float | timedelta | None = None,
        reason: str = "",
        *,
        max_attempts: int | None = None,
        cause: Exception | None = None,
        body: bytes | None = None,
        requeued: bool = False,
    ) -> None:
        super().__init__(delay, reason or (str(cause) if cause is not None else ""))
        self.max_attempts = max_attempts
        self.cause = cause
        self.body = body
        self.requeued = requeued


class Postpone(_Later):
    """Run the event again after *delay* (None: 2 s) without using an attempt."""
