"""The dead-letter queue as a port: put, receive, done. Nothing here knows a broker.

Letters by reason: those of some reasons go to a letterbox of their own (spec C6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.record import ForeignRecord, record_id
from angzarr.errors import DeadLetterQueueUnavailable, LetterTooLarge
from angzarr.runtime.fast_init import fast_init

#: Every queue, topic and subscription name starts with it (spec L2).
NAME_PREFIX = "angzarr-dlq-"
#: The domain of a letter that names none.
UNKNOWN_DOMAIN = "unknown"
#: Bytes of letters with which one `receive` is content, however many were asked for: read, they are
#: many times as much.
BATCH_BYTES: Final = 4 * 1024 * 1024


class TooLarge(str):
    """Why a letter was refused that its queue will never take, however often it is put."""

    __slots__ = ()


@dataclass(slots=True)
class Room:
    """The room left in one `receive`: so many letters, and bytes of them."""

    letters: int
    bytes: int = BATCH_BYTES

    def __bool__(self) -> bool:
        return self.letters > 0 and self.bytes > 0

    def take(self, size: int, letters: int = 1) -> None:
        """Count *letters* of *size* bytes; the last one may have more than is left."""
        self.letters -= letters
        self.bytes -= size


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A letter taken from its queue but not yet let go.

    `letter` is None where the bytes could not be read; `problem` then says why, `raw` holds what
    was received, and `record` what carried it, where the backend says more than the bytes do.
    `handle` belongs to the backend. Bytes that this process had no room to read are
    `to_read_again`: nothing is known against them.
    """

    domain: str
    letter: DeadLetter | None
    raw: bytes
    content_type: str
    problem: str = ""
    record: ForeignRecord | None = None
    to_read_again: bool = False
    handle: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLetter:
    """Bytes that could not be read as a letter, to be carried on as they came.

    With a `record` they travel in one document with it (see `codec.encode`): no backend carries
    the headers and places of all others.
    """

    domain: str
    raw: bytes
    content_type: str
    record: ForeignRecord | None = None

    @property
    def id(self) -> str:
        """The identity of these bytes, in the ledger, too."""
        return record_id(self.domain, self.raw, self.record)


#: What a queue carries.
Outgoing: TypeAlias = DeadLetter | RawLetter
#: Why bytes that are not a letter stay out of a queue that is not a `CarriesRaw`.
ONLY_LETTERS: Final = TooLarge("it cannot be read, and this destination takes nothing but letters")


class Letterbox(Protocol):
    """Takes letters. Every verb raises DeadLetterQueueUnavailable when the backend is away."""

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """For each letter, in order, None once it is confirmed durable, else the reason.

        A reason means that this letter was refused or not confirmed in time and must be put
        again, a `TooLarge` that it is in vain; putting one twice is harmless. Raises
        DeadLetterQueueUnavailable when nothing could be sent at all. Queues and topics that are
        missing are created.
        """

    def close(self) -> None:
        """Close connections; what is put again opens them again. Safe to call twice."""


class DeadLetterQueue(Letterbox, Protocol):
    """Holds letters until a reader takes them and lets them go."""

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters of *domains*, waiting at most *wait* for the first.

        It takes no more once they have `BATCH_BYTES` together; what is left comes next time.
        They come back to a reader if this process dies before `done`. Order is kept per queue
        or partition where the backend keeps it.
        """

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let these letters go for good; a receipt whose lease has ended is ignored."""

    def close(self) -> None:
        """Give back what was received and not done, and close connections; safe to call twice."""


@runtime_checkable
class CarriesRaw(Protocol):
    """A letterbox that takes bytes of any kind, besides letters."""

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Put bytes as `Letterbox.put` puts letters; their content type goes with them."""


@runtime_checkable
class CountsWaiting(Protocol):
    """A dead-letter queue that can count the letters that no reader has in hand."""

    def waiting(self, domains: Sequence[str], /) -> Mapping[str, int]:
        """The number of waiting letters of each of *domains*; it may lag, and creates nothing."""


@runtime_checkable
class TellsDamaged(Protocol):
    """A dead-letter queue that may hold what it can neither give out nor let go."""

    def damaged(self) -> Mapping[str, str]:
        """The damaged letters, by name, with the reason; they stay where they are."""


def put_raw(queue: Letterbox, letters: Sequence[RawLetter]) -> list[str | None]:
    """Put bytes into *queue*, which refuses them for good where it takes nothing but letters."""
    if isinstance(queue, CarriesRaw):
        return queue.put_raw(letters)
    return [ONLY_LETTERS] * len(letters)


def put_all(queue: Letterbox, letters: Sequence[Outgoing]) -> list[str | None]:
    """Put letters, and bytes that are none, and answer for each in order (see `Letterbox.put`).

    Where the queue takes letters and none of the bytes, these are refused alone: who puts all of
    them again would put the letters again and again.
    """
    whole = [one for one in letters if not isinstance(one, RawLetter)]
    raws = [one for one in letters if isinstance(one, RawLetter)]
    of_whole = queue.put(whole) if whole else []
    try:
        of_raws = put_raw(queue, raws) if raws else []
    except DeadLetterQueueUnavailable as error:
        if None not in of_whole:
            raise
        of_raws = [str(error)] * len(raws)
    told = {True: iter(of_raws), False: iter(of_whole)}
    return [next(told[isinstance(one, RawLetter)]) for one in letters]


def put_one(queue: Letterbox, letter: DeadLetter) -> None:
    """Put *letter* and wait until it is confirmed durable.

    Raises DeadLetterQueueUnavailable if it must be put again, LetterTooLarge if that is in vain.
    """
    (refusal,) = queue.put([letter])
    if refusal is None:
        return
    msg = f"the dead-letter queue of {letter.domain!r} did not take the letter: {refusal}"
    raise (LetterTooLarge if isinstance(refusal, TooLarge) else DeadLetterQueueUnavailable)(msg)


class LettersByReason:
    """A letterbox before several: *own* by reason, *rest* for all other letters.

    No letter goes to another than its own, also while that is away.
    """

    def __init__(self, rest: Letterbox, own: Mapping[Reason, Letterbox]) -> None:
        self._rest = rest
        self._own = dict(own)

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters* (see Letterbox); one that is away keeps none back from the others.

        Raises DeadLetterQueueUnavailable if none of those that were needed could be asked.
        """
        boxes = [self._own.get(letter.reason, self._rest) for letter in letters]
        answers: list[str | None] = [None] * len(letters)
        away: list[DeadLetterQueueUnavailable] = []
        needed = [box for box in (self._rest, *self._own.values()) if box in boxes]
        for box in needed:
            which = [at for at, one in enumerate(boxes) if one is box]
            try:
                told = box.put([letters[at] for at in which])
            except DeadLetterQueueUnavailable as error:
                away.append(error)
                told = [str(error)] * len(which)
            for at, answer in zip(which, told, strict=True):
                answers[at] = answer
        if away and len(away) == len(needed):
            raise away[0]
        return answers

    def close(self) -> None:
        """Close all of them."""
        with ExitStack() as doors:
            for box in (self._rest, *self._own.values()):
                doors.callback(box.close)
