"""Transfer: carries letters out of a queue, and is done with them once they are safe elsewhere.

It may be killed at any point. What it had in hand comes back. What was put and not yet done is put
again under the same id by the next run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar

from angzarr.clock import Clock
from angzarr.dead_letters.queue import (
    CountsWaiting,
    DeadLetterQueue,
    Outgoing,
    RawLetter,
    Receipt,
    TellsDamaged,
    put_all,
)
from angzarr.errors import DeadLetterQueueUnavailable

T = TypeVar("T")

#: Makes letters safe elsewhere; says for each, in order, None or why it must stay.
Carry: TypeAlias = Callable[[Sequence[Receipt]], list[str | None]]

#: Letters taken at once.
BATCH: Final = 100
#: Letters left at their source before a transfer gives up: something is wrong with its target.
MOST_KEPT: Final = 1000
#: How long one look waits for a letter.
_LOOK: Final = timedelta(seconds=1)
#: How long nothing must come until a source counts as empty: where it says that nothing waits,
#: where it cannot say, and where it says that something waits: a consumer that was killed is missed
#: by its group after Kafka's 45 s.
_QUIET: Final = timedelta(seconds=1)
_QUIET_UNCOUNTED: Final = timedelta(seconds=10)
_QUIET_BUT_WAITING: Final = timedelta(seconds=60)
#: Pauses before a queue that is away is asked again, in seconds; then the transfer ends.
_PAUSES: Final = (1, 2, 4, 8)
#: The longest that a stop is not looked for.
_NAP: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCourse:
    """The selection of a transfer and its speed."""

    domains: Sequence[str]
    #: Letters taken in all; None: until the source is empty.
    limit: int | None = None
    #: Letters a second; None: as fast as it goes.
    rate: float | None = None
    #: Whether what is safe elsewhere is done at the source, or comes back to it.
    take_away: bool = True

    def batch(self, taken: int) -> int:
        """The number of letters to take next, after *taken* of them: at most 10 s of them."""
        paced = BATCH if self.rate is None else max(1, min(BATCH, int(self.rate * 10)))
        return paced if self.limit is None else max(0, min(paced, self.limit - taken))

    def due(self, taken: int) -> timedelta:
        """The time that *taken* letters take at this rate."""
        return timedelta(seconds=taken / self.rate) if self.rate else timedelta(0)


@dataclass(slots=True)
class MoveAccount:
    """The results for the letters of one transfer; they are counted by their source queue."""

    carried: Counter[str] = field(default_factory=Counter)
    #: Of those carried: bytes that could not be read.
    unreadable: int = 0
    #: The letters that stay at their source, by name, with the reason.
    kept: dict[str, str] = field(default_factory=dict)
    #: Letters that the source said to have when nothing came any more; None: it cannot say.
    remaining: int | None = None

    @property
    def taken(self) -> int:
        """Letters that were looked at."""
        return self.carried.total() + len(self.kept)


class Transfer:
    """One run from a source to a *carry*; *stop* says that it should end between two batches.

    Raises DeadLetterQueueUnavailable where a queue cannot be reached at first, which may be named
    wrongly, or was away for some 15 s later.
    """

    def __init__(
        self,
        source: DeadLetterQueue,
        carry: Carry,
        course: MoveCourse,
        *,
        clock: Clock,
        stop: Callable[[], bool],
        tell: Callable[[MoveAccount], None] = lambda _account: None,
    ) -> None:
        self.account = MoveAccount()
        self._source = source
        self._carry = carry
        self._course = course
        self._clock = clock
        self._stop = stop
        self._tell = tell
        #: What stays at the source: it may come again, and then says that the rest was seen.
        self._left: set[bytes] = set()
        #: The queues' verbs that have worked once.
        self._worked: set[str] = set()

    def run(self) -> MoveAccount:
        """Carry letters until the source is empty, the limit is reached or it is stopped."""
        began = self._clock.now()
        for receipts in self._batches():
            answers = self._patiently("carry", partial(self._carry, receipts))
            self._settle(receipts, answers)
            self._tell(self.account)
            due = began + self._course.due(self.account.taken)
            _sleep_until(due, clock=self._clock, stop=self._stop)
        if isinstance(self._source, TellsDamaged):
            self.account.kept.update(self._source.damaged())
        return self.account

    def _batches(self) -> Iterator[list[Receipt]]:
        quiet_since = self._clock.now()
        while not self._stop() and (room := self._room()):
            taken = self._take(room)
            fresh = [one for one in taken if _mark(one) not in self._left]
            if fresh:
                yield fresh
                quiet_since = self._clock.now()
            elif self._clock.now() - quiet_since >= self._patience():
                return
            elif taken:  # nothing but what stays comes: no hot loop
                self._clock.sleep(_NAP)

    def _room(self) -> int:
        if len(self.account.kept) >= MOST_KEPT:
            return 0
        return self._course.batch(self.account.taken)

    def _take(self, room: int) -> list[Receipt]:
        domains = self._course.domains
        look = partial(self._source.receive, domains, limit=room, wait=_LOOK)
        return self._patiently("receive", look)

    def _patience(self) -> timedelta:
        self.account.remaining = count = waiting(self._source, self._course.domains)
        if count is None:
            return _QUIET_UNCOUNTED
        return _QUIET_BUT_WAITING if count else _QUIET

    def _settle(self, receipts: Sequence[Receipt], answers: Sequence[str | None]) -> None:
        safe = [one for one, why in zip(receipts, answers, strict=True) if why is None]
        if self._course.take_away:
            self._patiently("done", partial(self._source.done, safe))
        else:
            self._left.update(map(_mark, safe))
        for receipt, why in zip(receipts, answers, strict=True):
            if why is not None:
                self._left.add(_mark(receipt))
                self.account.kept[name_of(receipt)] = why
        self.account.carried.update(one.domain for one in safe)
        self.account.unreadable += sum(one.letter is None for one in safe)

    def _patiently(self, verb: str, call: Callable[[], T]) -> T:
        if verb in self._worked:
            return patiently(call, clock=self._clock, stop=self._stop)
        answer = call()
        self._worked.add(verb)
        return answer


def patiently(call: Callable[[], T], *, clock: Clock, stop: Callable[[], bool]) -> T:
    """The value of *call*, which is repeated while a queue is away, for some 15 s."""
    for seconds in _PAUSES:
        try:
            return call()
        except DeadLetterQueueUnavailable:
            _sleep_until(clock.now() + timedelta(seconds=seconds), clock=clock, stop=stop)
            if stop():
                raise
    return call()


def _sleep_until(moment: datetime, *, clock: Clock, stop: Callable[[], bool]) -> None:
    while not stop() and (left := moment - clock.now()) > timedelta(0):
        clock.sleep(min(left, _NAP))


def carry_into(target: DeadLetterQueue) -> Carry:
    """A carry that puts letters into *target*, and bytes that are none, where it takes them."""

    def carry(receipts: Sequence[Receipt]) -> list[str | None]:
        return put_all(target, [_outgoing(one) for one in receipts])

    return carry


def waiting(queue: DeadLetterQueue, domains: Sequence[str]) -> int | None:
    """The number of waiting letters of *domains*; None: *queue* cannot say now."""
    if not isinstance(queue, CountsWaiting):
        return None
    try:
        return sum(queue.waiting(domains).values())
    except DeadLetterQueueUnavailable:
        return None


def name_of(receipt: Receipt) -> str:
    """The id of a letter, or that of bytes that are none."""
    return _outgoing(receipt).id


def _outgoing(receipt: Receipt) -> Outgoing:
    return receipt.letter or RawLetter(
        domain=receipt.domain,
        raw=receipt.raw,
        content_type=receipt.content_type,
        record=receipt.record,
    )


def _mark(receipt: Receipt) -> bytes:
    """A short digest that tells a letter from others: there may be millions."""
    known = _outgoing(receipt).id
    whole = f"{receipt.domain}\0{known}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(whole, digest_size=16).digest()
