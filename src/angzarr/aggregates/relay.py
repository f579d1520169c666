"""Relay: publishes what somebody decided who died, or lost the broker, before he could.

A delivery needs none: its message comes again. Whoever executes a command in a process of his own
has only the book.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.aggregates.book import Address, Decision, EventBooks
from angzarr.clock import Clock
from angzarr.errors import BrokerUnavailable, Unavailable, text_of
from angzarr.events.event import Event
from angzarr.runtime.log_throttle import LogThrottle

_log = logging.getLogger("angzarr.aggregates")

#: How long whoever decided has to publish it himself.
GRACE: Final = timedelta(seconds=30)
EVERY: Final = timedelta(seconds=10)
BATCH: Final = 100
#: What was refused is tried again after this.
AGAIN: Final = timedelta(minutes=10)


@dataclass(slots=True, kw_only=True)
class Relay:
    """Fulfils `Turns`; any number of processes may do it at once: events have their ids."""

    books: EventBooks
    publish: Callable[[Sequence[Event]], None]
    clock: Clock
    chance: Callable[[], float]
    seldom: LogThrottle = field(default_factory=LogThrottle)
    #: What could not be sent, and when that was.
    _refused: dict[tuple[Address, str], datetime] = field(default_factory=dict, init=False)

    def turn(self) -> timedelta:
        """Publish a batch; return how long to wait before the next turn. Never raises."""
        try:
            sent = self.relay()
        except Exception as error:  # noqa: BLE001 - what is unsent stays so, and is tried again
            if self.seldom.now("away"):
                _log.warning("relay_waits: %s", text_of(error))
            sent = 0
        return timedelta(0) if sent == BATCH else EVERY * (0.5 + self.chance())

    def relay(self) -> int:
        """Publish what is overdue, a batch at most; return how many decisions that was."""
        now = self.clock.now()
        self._refused = {place: at for place, at in self._refused.items() if now - at < AGAIN}
        overdue = self.books.unsent(now - GRACE, BATCH + len(self._refused))
        fresh = [one for one in overdue if (one.address, one.decision.cause) not in self._refused]
        return sum(self._send(address, decision) for address, decision in fresh)

    def _send(self, address: Address, decision: Decision) -> bool:
        """Publish one; what is refused stays unsent, is tried later, and holds up no other."""
        try:
            self.publish(decision.events)
        except Unavailable as away:
            if not (isinstance(away, BrokerUnavailable) and away.refused):
                raise
            return self._put_off(address, decision, away)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others wait
            return self._put_off(address, decision, error)
        self.books.sent(address, decision.cause)
        return True

    def _put_off(self, address: Address, decision: Decision, error: Exception) -> bool:
        self._refused[address, decision.cause] = self.clock.now()
        if self.seldom.now("refused"):
            cause = decision.cause
            _log.error("relay_refused: %s of %s is not sent: %s", cause, address, text_of(error))
        return False

    def leave(self) -> None:
        """Let the books go."""
        self.books.close()
