"""RetryUntilAvailable: keeps a message in hand while a server that it needs is away.

A store or a dead-letter queue that is away is not an outcome: nothing is decided, acknowledged or
sent back (a broker would count that against the message). A broker's refusal and an unforeseen
error are tried some times and then passed on: waiting does not help there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from angzarr.clock import Clock
from angzarr.delivery.delivery import Delivery
from angzarr.errors import DeliveryError, GivenBack, NotYet, is_absence, text_of
from angzarr.runtime.cooperative import call_blocking
from angzarr.runtime.failures import FailureCounts, LogThrottle

_log = logging.getLogger("angzarr.delivery")

FIRST_WAIT = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(seconds=5)
#: How often a step is tried that fails though no server is away: half a minute in all.
MOST_TRIES = 10
#: How soon a shutdown is noticed.
NOTICE = timedelta(milliseconds=200)

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class RetryUntilAvailable:
    """Tries a step again, with jitter, until it works or the worker stops."""

    clock: Clock
    chance: Callable[[], float]
    stopping: Callable[[], bool]
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def until_done(
        self, step: Callable[[], T], *, what: str, delivery: Delivery, blocks: bool = True
    ) -> T:
        """*step*'s value once it works; raises GivenBack when the worker stops first.

        *step* must be safe to repeat: it may have worked without our hearing of it. A
        DeliveryError that it raises is passed on at once, and after `MOST_TRIES` whatever is no
        absence (see `is_absence`). One that *blocks* runs where it keeps no other delivery.
        """
        wait, tries, event_id = FIRST_WAIT, 0, delivery.event.id
        while True:
            try:
                return call_blocking(step) if blocks else step()
            except DeliveryError:
                raise
            except Exception as error:
                tries += not is_absence(error)
                if tries >= MOST_TRIES:
                    _log.critical("gave_up: could not %s, event %s: %r", what, event_id, error)
                    raise
                failed = error
            self._pause(wait * (0.5 + self.chance()), what, event_id, failed)
            wait = min(wait * 2, LONGEST_WAIT)

    def _pause(self, span: timedelta, what: str, event_id: str, failed: Exception) -> None:
        try:
            self._report(what, event_id, failed)
            self._wait(span)
        except GivenBack:
            raise
        except Exception as error:  # noqa: BLE001 - a soft time limit strikes wherever it finds us
            _log.warning("holding event %s, in spite of: %r", event_id, error)

    def _wait(self, span: timedelta) -> None:
        """Wait in slices that are counted, so that a clock set back makes no wait longer."""
        while span > timedelta(0):
            if self.stopping():
                msg = "the worker stops; the message goes back to the broker"
                raise GivenBack(msg)
            self.clock.sleep(min(span, NOTICE))
            span -= NOTICE

    def _report(self, what: str, event_id: str, error: Exception) -> None:
        if not self.seldom.now():
            return
        _log.critical(
            "holding event %s: could not %s, trying again: %s", event_id, what, error,
            exc_info=None if isinstance(error, OSError) else error,
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class TryOnce(RetryUntilAvailable):
    """Does not wait: one thread serves many deliveries, and none may block the others."""

    #: How often the steps of deliveries that are tried again later failed though no server is away.
    _tries: FailureCounts = field(default_factory=FailureCounts)

    def until_done(
        self,
        step: Callable[[], T],
        *,
        what: str,
        delivery: Delivery,
        blocks: bool = True,  # noqa: ARG002 - the thread has it to itself
    ) -> T:
        """*step*'s value, or raises NotYet: the caller tries the delivery again later.

        After `MOST_TRIES` of a delivery an error that is not an absence is passed on.
        """
        key, event_id = (delivery.key, what), delivery.event.id
        try:
            done = step()
        except DeliveryError:
            raise
        except Exception as error:
            if not is_absence(error) and self._tries.add(key) >= MOST_TRIES:
                self._tries.forget(key)
                _log.critical("gave_up: could not %s, event %s: %r", what, event_id, error)
                raise
            self._report(what, event_id, error)
            msg = f"could not {what} yet: {text_of(error)}"
            raise NotYet(msg) from error
        self._tries.forget(key)
        return done
