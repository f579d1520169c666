"""FallbackQueue: dead-letter queues in order; what one does not take, the next one does (spec L4).

It knows ports only. A letter counts as put when one target has confirmed it, and no letter is
refused before each target was asked for it.

Absence: how long a target that was found away is passed over, so that an outage is paid seldom.

A target that is away costs its time-out each time it is asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import (
    DeadLetterQueue,
    Letterbox,
    Outgoing,
    RawLetter,
    Receipt,
    TooLarge,
    put_all,
)
from angzarr.errors import AngzarrError, DeadLetterQueueUnavailable, text_of
from angzarr.runtime.failures import LogThrottle

#: A pause is between half of what it has grown to and all of it: from 1 s to 30 s.
FIRST_PAUSE: Final = timedelta(seconds=2)
LONGEST_PAUSE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Absence:
    """A target found away *times* in a row, and passed over until *until*, in seconds."""

    times: int
    until: float
    cause: str


class AskingOrder(NamedTuple):
    """Who is asked first, and who only for what none of those took."""

    present: list[str]
    passed_over: list[str]


def found_away(before: Absence | None, cause: str, *, now: float, chance: float) -> Absence:
    """The absence of a target that was found away, again where *before* is given.

    The pause doubles up to the longest; *chance*, from 0 to 1, spreads it over its second half.
    """
    times = 1 if before is None else before.times + 1
    grown = min(FIRST_PAUSE * 2 ** min(times - 1, 30), LONGEST_PAUSE)
    return Absence(times, now + grown.total_seconds() * (0.5 + 0.5 * chance), cause)


def is_passed_over(absence: Absence | None, now: float) -> bool:
    """True if a target is passed over at *now*."""
    return absence is not None and now < absence.until


class Absences:
    """The absences of targets that one process knows; safe from any thread and across fork.

    *monotonic* gives seconds that are never set back.
    """

    def __init__(self, monotonic: Callable[[], float], chance: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._chance = chance
        self._known: dict[str, Absence] = {}

    def in_order(self, names: Sequence[str]) -> AskingOrder:
        """*names* in their order, those that are passed over apart."""
        now = self._monotonic()
        away = [name for name in names if is_passed_over(self._known.get(name), now)]
        return AskingOrder([name for name in names if name not in away], away)

    def begin(self, name: str) -> Absence | None:
        """Note that *name* is asked now; return what was known of its absence.

        If its pause has just ended, the others go on passing it over: one finds out for all.
        """
        before = self._known.get(name)
        if before is not None:
            self._known[name] = self._next(before, before.cause)
        return before

    def is_away(self, name: str, before: Absence | None, cause: str) -> None:
        """Note that *name* is away; those who asked it at the same time count once."""
        self._known[name] = self._next(before, cause)

    def is_back(self, name: str) -> None:
        """Note that *name* answered."""
        self._known.pop(name, None)

    def causes(self, names: Sequence[str]) -> dict[str, str]:
        """Why each of *names* that is away is so."""
        known = {name: self._known.get(name) for name in names}
        return {name: absence.cause for name, absence in known.items() if absence is not None}

    def _next(self, before: Absence | None, cause: str) -> Absence:
        return found_away(before, cause, now=self._monotonic(), chance=self._chance())


_log = logging.getLogger("angzarr.dead_letters")

#: What the last target is called that keeps letters until the others take them.
SPOOL: Final = "spool"
#: Seconds after which a target that confirmed nothing counts as away: it costs as much.
_SLOW: Final = 1.0
#: The least that one target waits for a first letter while the others are not looked at.
_TURN: Final = timedelta(seconds=1)
_NOTHING: Final = timedelta(0)


class FallbackHandle(NamedTuple):
    """Which target a letter came from, and that one's own handle."""

    target: str
    inner: Any


class FallbackQueue:
    """A chain of *queues*, by name and in order, and a *spool* behind them that is never read.

    A target that was found away is passed over for a pause, and asked before it is over only for
    letters that no other took. *confirmed* gets the number of letters for each target. Safe
    from any thread and across fork if its targets are.
    """

    def __init__(
        self,
        queues: Mapping[str, DeadLetterQueue],
        *,
        spool: Letterbox | None = None,
        chance: Callable[[], float],
        confirmed: Callable[[str, int], object] = lambda _target, _count: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues = dict(queues)
        self._boxes: dict[str, Letterbox] = {**queues, **({SPOOL: spool} if spool else {})}
        self._confirmed = confirmed
        self._monotonic = monotonic
        self._puts = Absences(monotonic, chance)
        self._reads = Absences(monotonic, chance)
        self._first = next(iter(self._boxes))
        self._turn = 0
        self._seldom = LogThrottle(monotonic=monotonic)

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Offer *letters* to one target after the other (see DeadLetterQueue).

        A reason names what each target had against the letter; it is a TooLarge if all of them
        said so. Raises DeadLetterQueueUnavailable if none could be asked for any letter.
        """
        return self._put(letters)

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Offer bytes that are no letter in the same way (see CarriesRaw)."""
        return self._put(letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take letters from all queues, each beginning in its turn (see DeadLetterQueue).

        Raises DeadLetterQueueUnavailable if none came and a queue is away.
        """
        if not domains:
            return []
        taken = self._look_at_all(domains, limit)
        ends = self._monotonic() + wait.total_seconds()
        for name, span in self._waits(wait):
            left = timedelta(seconds=ends - self._monotonic())
            if taken or left <= _NOTHING:
                break
            taken = self._ask(name, domains, limit, min(span, left))
        if not taken and (causes := self._reads.causes(list(self._queues))):
            msg = f"dead letters cannot be read from everywhere: {_joined(causes)}"
            raise DeadLetterQueueUnavailable(msg)
        return taken

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let each letter go where it came from; a target that fails keeps no other from it."""
        failures: list[Exception] = []
        for name, queue in self._queues.items():
            own = [_inner(receipt) for receipt in receipts if _is_of(receipt, name)]
            try:
                if own:
                    queue.done(own)
            except Exception as error:  # noqa: BLE001 - raised when the others were told
                failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close every target."""
        with ExitStack() as doors:
            for box in self._boxes.values():
                doors.callback(box.close)

    # -- putting -------------------------------------------------------------------------------

    def _put(self, letters: Sequence[Outgoing]) -> list[str | None]:
        if not letters:
            return []
        reasons: list[dict[str, str]] = [{} for _ in letters]
        waiting = list(range(len(letters)))
        answered = False
        present, passed_over = self._puts.in_order(list(self._boxes))
        for name in (*present, *passed_over):
            if not waiting:
                break
            answers = self._offer(name, [letters[at] for at in waiting])
            answered |= not isinstance(answers, str)
            waiting = self._note(name, waiting, answers, reasons)
        if not answered:
            msg = f"no target takes dead letters: {_joined(reasons[0])}"
            raise DeadLetterQueueUnavailable(msg)
        refused = set(waiting)
        return [_combined(reasons[at]) if at in refused else None for at in range(len(letters))]

    def _offer(self, name: str, letters: Sequence[Outgoing]) -> list[str | None] | str:
        """The answers of the target *name*, or why it could not be asked."""
        began, before = self._monotonic(), self._puts.begin(name)
        try:
            answers = put_all(self._boxes[name], letters)
        except Exception as error:  # noqa: BLE001 - whatever broke, the next may take them
            cause = self._cause(name, error)
            self._puts.is_away(name, before, cause)
            return cause
        self._judge(name, before, answers, self._monotonic() - began)
        return answers

    def _judge(
        self, name: str, before: Absence | None, answers: Sequence[str | None], took: float
    ) -> None:
        refused = [one for one in answers if one is not None and not isinstance(one, TooLarge)]
        if took >= _SLOW and len(refused) == len(answers):
            self._puts.is_away(name, before, refused[0])
        else:
            self._puts.is_back(name)

    def _note(
        self,
        name: str,
        waiting: Sequence[int],
        answers: list[str | None] | str,
        reasons: list[dict[str, str]],
    ) -> list[int]:
        """Note what *name* said; return those that are not confirmed yet."""
        if isinstance(answers, str):
            answers = [answers] * len(waiting)
        left = []
        for at, answer in zip(waiting, answers, strict=True):
            if answer is not None:
                reasons[at][name] = answer
                left.append(at)
        if count := len(waiting) - len(left):
            self._confirmed(name, count)
            self._tell(name, reasons)
        return left

    def _tell(self, name: str, reasons: Sequence[Mapping[str, str]]) -> None:
        """Log where letters go instead, each target once a minute."""
        if name == self._first or not self._seldom.now(name):
            return
        causes = {**self._puts.causes([self._first]), **next(filter(None, reasons), {})}
        causes.pop(name, None)
        _log.warning("dead_letters_fall_back: they go to %s for now: %s", name, _joined(causes))

    def _cause(self, name: str, error: Exception) -> str:
        """Why *name* could not be asked; the text of an unknown error may hold secrets."""
        if isinstance(error, AngzarrError):
            return text_of(error)
        if self._seldom.now(f"{name} broke"):
            _log.error("dead_letter_target_broke: %s, the others go on", name, exc_info=error)
        return f"its client broke ({type(error).__name__})"

    # -- receiving -----------------------------------------------------------------------------

    def _look_at_all(self, domains: Sequence[str], limit: int) -> list[Receipt]:
        """Look once at each queue without waiting, beginning after the one that began before."""
        present, passed_over = self._reads.in_order(list(self._queues))
        self._turn += 1
        taken: list[Receipt] = []
        for name in _rotated(present or passed_over, self._turn):
            if len(taken) < limit:
                taken += self._ask(name, domains, limit - len(taken), _NOTHING)
        return taken

    def _waits(self, wait: timedelta) -> Iterator[tuple[str, timedelta]]:
        """Yield who waits for a first letter, and how long, beginning with whose turn it is."""
        present = self._reads.in_order(list(self._queues)).present
        for name in _rotated(present, self._turn):
            yield name, max(wait / len(present), _TURN)

    def _ask(self, name: str, domains: Sequence[str], limit: int, wait: timedelta) -> list[Receipt]:
        before = self._reads.begin(name)
        try:
            taken = self._queues[name].receive(domains, limit=limit, wait=wait)
        except Exception as error:  # noqa: BLE001 - whatever broke, the others are read
            self._reads.is_away(name, before, self._cause(name, error))
            return []
        self._reads.is_back(name)
        return [replace(one, handle=FallbackHandle(name, one.handle)) for one in taken]


def _is_of(receipt: Receipt, name: str) -> bool:
    return isinstance(receipt.handle, FallbackHandle) and receipt.handle.target == name


def _inner(receipt: Receipt) -> Receipt:
    return replace(receipt, handle=receipt.handle.inner)


def _rotated(names: Sequence[str], by: int) -> list[str]:
    at = by % len(names) if names else 0
    return [*names[at:], *names[:at]]


def _combined(reasons: Mapping[str, str]) -> str:
    told = _joined(reasons)
    return TooLarge(told) if all(isinstance(one, TooLarge) for one in reasons.values()) else told


def _joined(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())
