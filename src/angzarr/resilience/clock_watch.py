"""ClockWatch: compares this machine's clock with its claim store's, at start and each minute.

A worker whose clock is wrong would run countdowns too early or too late, expire fresh messages and
date its letters wrong; an analysis worker would misread the dates of others. Such a process goes by
the store's clock then, and reports it until the machine's is set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from angzarr.clock import follow, stands_in
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.health_report import Condition

_log = logging.getLogger("angzarr.worker")

#: Between two comparisons.
COMPARED_EVERY: Final = timedelta(minutes=1)
#: What a machine's clock may differ from the store's before the store's is gone by.
TOLERATED: Final = timedelta(seconds=1)
#: A question that took longer tells too little.
QUICK: Final = timedelta(seconds=1)


def _machine_time() -> datetime:
    return datetime.now(UTC)


class ClockWatch:
    """One process's, and its children's. Fulfils `Turns`; a worker renews it with its lease.

    It is renewed by one thread, the rest may be called from any.

    *ask* returns the store's time, or raises whatever its client does.
    """

    def __init__(
        self,
        ask: Callable[[], datetime],
        *,
        own: Callable[[], datetime] = _machine_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._own = own
        self._monotonic = monotonic
        self._again_at = float("-inf")
        self._seldom = LogThrottle(600.0, monotonic)
        #: How far this machine's clock is ahead of the store's, beyond what the way to the store
        #: explains; None: not known yet.
        self.ahead: timedelta | None = None

    def renew(self) -> None:
        """Compare, unless it was done within the minute. Never raises: no lease hangs on it."""
        if self._monotonic() < self._again_at or stands_in():
            return
        self._again_at = self._monotonic() + COMPARED_EVERY.total_seconds()
        try:
            self._compare()
        except Exception as error:  # noqa: BLE001 - the lease says that the store is away
            _log.debug("clock_not_compared: %r", error)

    def turn(self) -> timedelta:
        """Compare; return how long to wait before the next turn. Never raises."""
        self.renew()
        return COMPARED_EVERY

    def leave(self) -> None:
        """Go by the machine's own clock again."""
        follow(None)

    def condition(self) -> Condition:
        """What a probe tells of it: a wrong clock is followed by no restart."""
        says = "not compared with the claim store's yet"
        if self.ahead is not None:
            says = "as the claim store's"
            if abs(self.ahead) > TOLERATED:
                says = f"{_told(self.ahead)} the claim store's, by which this process goes"
        return Condition("clock", holds=True, says=says)

    def _compare(self) -> None:
        before, begun = self._own(), self._monotonic()
        there = self._ask()
        took = timedelta(seconds=self._monotonic() - begun)
        if took > QUICK:
            return
        self.ahead = _beyond(before - there, took)
        if abs(self.ahead) <= TOLERATED:
            follow(None)
            return
        follow(there + took / 2)
        if self._seldom.now():
            _log.error(
                "clock_skew: this machine's clock is %s the claim store's, by which this process"
                " goes. Set the clock of the one that is wrong (NTP)",
                _told(self.ahead),
            )


def _beyond(ahead: timedelta, took: timedelta) -> timedelta:
    """How far a clock is *ahead* that was read first; nothing that the way may explain.

    The other clock was read within *took* after it.
    """
    if -took <= ahead <= timedelta(0):
        return timedelta(0)
    return ahead if ahead > timedelta(0) else ahead + took


def _told(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"
