"""Mover: publishes what waited in a schedule and is due.

It publishes first and deletes then: a mover that dies in between makes a second message at the same
position, of which one runs. Whatever goes wrong, a row stays until it is published.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from angzarr.delivery.schedule import REFUSED_FOR, DueMessages, Row, read_row
from angzarr.errors import DecodeError, StoreUnavailable, Unavailable
from angzarr.events.event import Message
from angzarr.runtime.failures import FailureCounts, LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.schedule")

#: Rows taken at once: two round trips of the schedule for each hundred messages.
BATCH: Final = 100
#: How long rows are lent. A mover that was killed delays what it had taken by this much.
LEASE: Final = timedelta(seconds=5)
#: How long a batch may be published before the rest is given back, well before the lease ends.
SPELL: Final = LEASE / 2
#: How often the schedule is looked at for what others put: half of the second that a wait may err.
LOOK_EVERY: Final = timedelta(milliseconds=500)
#: When a row is tried again at which the broker went away.
AWAY_FOR: Final = timedelta(seconds=1)

#: How often a row is refused for good before it is a dead letter: ten minutes where one worker
#: moves, longer where many share the work.
MOST_REFUSALS: Final = 20

FIRST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(seconds=5)
_NOTHING: Final = timedelta(0)


@dataclass(slots=True)
class _Verdicts:
    """The outcomes of the rows of one token, until the schedule has heard of them."""

    published: list[str] = field(default_factory=list)
    again: dict[timedelta, list[str]] = field(default_factory=dict)

    def give_back(self, rows: Sequence[Row], pause: timedelta = _NOTHING) -> None:
        if rows:
            self.again.setdefault(pause, []).extend(row.id for row in rows)


@dataclass(slots=True, kw_only=True)
class Mover:
    """Moves batches; called by one thread. Several movers of one schedule share the work.

    *refuses* is true of an error of *publish* that concerns this message alone, *for_good* of one
    that waiting does not help. *set_aside* makes a dead letter of an unreadable row, *dead_letter*
    one of a message that was refused for good `MOST_REFUSALS` times. *stopping* ends a batch early.
    """

    due: DueMessages
    publish: Callable[[Message], None]
    refuses: Callable[[Exception], bool]
    for_good: Callable[[Exception], bool]
    set_aside: Callable[[bytes, Exception], None]
    dead_letter: Callable[[Message, Exception], object]
    chance: Callable[[], float]
    stopping: Callable[[], bool]
    monotonic: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False)
    _verdicts: _Verdicts = field(default_factory=_Verdicts, init=False)
    _wait: timedelta = field(default=FIRST_WAIT, init=False)
    _seldom: LogThrottle = field(init=False)
    #: How often rows were refused for good here.
    _refusals: FailureCounts = field(default_factory=FailureCounts, init=False)

    def __post_init__(self) -> None:
        self._seldom = LogThrottle(monotonic=self.monotonic)

    def turn(self) -> timedelta:
        """Move one batch; return how long to wait before the next turn. Never raises."""
        try:
            self._tell()
            taken = self.due.take(self._token, BATCH, LEASE)
            at_work = self._move(taken.rows)
            self._tell()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it: no mover, no retries
            self._report("schedule_away", "the schedule cannot be read, trying again", error)
            return self._back_off()
        if not at_work:
            return self._back_off()
        self._wait = FIRST_WAIT
        if taken.next_in is None:
            return self._look()
        return max(min(taken.next_in, self._look()), _NOTHING)

    def leave(self) -> None:
        """Report the remaining verdicts; rows not reported come back by their lease."""
        try:
            self._tell()
        except Exception as error:  # noqa: BLE001 - the process ends
            _log.warning("schedule_not_told: its rows come back within %s (%s)", LEASE, error)

    def _tell(self) -> None:
        """Let go of a batch, if one is in hand, and begin another; may be repeated."""
        if self._verdicts.published:
            self.due.done(self._token, self._verdicts.published)
        for pause, ids in self._verdicts.again.items():
            self.due.give_back(self._token, ids, pause)
        if self._verdicts.published or self._verdicts.again or not self._token:
            self._token = os.urandom(16).hex()
            self._verdicts = _Verdicts()

    def _move(self, rows: Sequence[Row]) -> bool:
        """Publish *rows*, noting what became of each; tell whether going on at once makes sense."""
        verdicts, until = self._verdicts, self.monotonic() + SPELL.total_seconds()
        for number, row in enumerate(rows):
            if self.stopping() or self.monotonic() > until:
                verdicts.give_back(rows[number:])
                break
            if not self._publish(row):
                verdicts.give_back(rows[number : number + 1], AWAY_FOR)
                verdicts.give_back(rows[number + 1 :])
                return False
        return not rows or bool(verdicts.published)

    def _publish(self, row: Row) -> bool:
        """Publish *row* or see what is wrong with it; return False if that cannot be seen now.

        The broker is away, or this machine lacks memory, threads or files: no row is at fault.
        """
        try:
            message = read_row(row.text)
        except DecodeError as error:
            return not self._lacks(error) and self._set_aside(row, error)
        try:
            self.publish(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep the others
            if self._lacks(error) or self._is_away(error):
                return False
            return self._given_up(row, message, error) or self._refused(row, error)
        self._refusals.forget(row.id)
        self._verdicts.published.append(row.id)
        return True

    def _lacks(self, error: Exception) -> bool:
        if not is_machine_fault(error):
            return False
        self._report("machine_short", "what is due waits: raise this worker's limits", error)
        return True

    def _is_away(self, error: Exception) -> bool:
        if not isinstance(error, Unavailable) or self.refuses(error):
            return False
        self._report("broker_away", "what is due waits for the broker", error)
        return True

    def _given_up(self, row: Row, message: Message, error: Exception) -> bool:
        """True if *message* is a dead letter now; it was refused too often."""
        if isinstance(error, Unavailable) and not self.for_good(error):
            return False
        if self._refusals.add(row.id) < MOST_REFUSALS:
            return False
        try:
            self.dead_letter(message, error)
        except Exception as failed:  # noqa: BLE001 - the row is kept until it is a letter
            self._report("letter_not_put", f"row {row.id} stays", failed)
            return False
        _log.error("schedule_row_given_up: %s is a dead letter now (%r)", row.id, error)
        self._refusals.forget(row.id)
        self._verdicts.published.append(row.id)
        return True

    def _refused(self, row: Row, error: Exception) -> bool:
        what = f"row {row.id} cannot be published and is kept, trying again in {REFUSED_FOR}"
        self._report("schedule_row_refused", what, error)
        self._verdicts.give_back([row], REFUSED_FOR)
        return True

    def _set_aside(self, row: Row, error: Exception) -> bool:
        try:
            self.set_aside(row.text.encode("utf-8", "surrogatepass"), error)
        except Exception as failed:  # noqa: BLE001 - the row is kept until it is a letter
            return self._refused(row, failed)
        _log.error("schedule_row_unreadable: %s is a dead letter now (%s)", row.id, error)
        self._verdicts.published.append(row.id)
        return True

    def _look(self) -> timedelta:
        """When to look again; many workers do not look at one moment."""
        return LOOK_EVERY * (0.8 + 0.2 * self.chance())

    def _back_off(self) -> timedelta:
        span = self._wait * (0.5 + self.chance())
        self._wait = min(self._wait * 2, LONGEST_WAIT)
        return span

    def _report(self, cause: str, what: str, error: Exception) -> None:
        """Log an outage, each cause once a minute."""
        if not self._seldom.now(cause):
            return
        known = isinstance(error, StoreUnavailable | Unavailable | OSError)
        _log.error("%s: %s: %s", cause, what, error, exc_info=None if known else error)
