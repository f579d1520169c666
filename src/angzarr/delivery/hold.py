"""Hold: keep a message in hand while a server it needs is away (decisions 5).

A store or a dead-letter queue that is away is not an outcome: nothing is decided, nothing is
acknowledged and nothing is sent back (a broker would count that against the message).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from angzarr.clock import Clock
from angzarr.errors import DeliveryError, GivenBack, NotYet, text_of
from angzarr.seldom import Seldom

_log = logging.getLogger("angzarr.delivery")

FIRST_WAIT = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(seconds=5)
#: How soon a shutdown is noticed.
NOTICE = timedelta(milliseconds=200)

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Hold:
    """Tries a step again, with jitter, until it works or the worker stops."""

    clock: Clock
    chance: Callable[[], float]
    stopping: Callable[[], bool]
    seldom: Seldom = field(default_factory=Seldom)

    def until_done(self, step: Callable[[], T], *, what: str, event_id: str) -> T:
        """Return *step*'s value once it works; raise GivenBack when the worker stops first.

        *step* must be safe to repeat: it may have worked without our hearing of it. A
        DeliveryError that it raises is no absence, and is passed on.
        """
        wait = FIRST_WAIT
        while True:
            try:
                return step()
            except DeliveryError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the message must not be let go
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
            _log.warning("still holding event %s, in spite of: %r", event_id, error)

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
class TriedOnce(Hold):
    """Waits for nobody: where one thread serves many deliveries, one must not block the others."""

    def until_done(self, step: Callable[[], T], *, what: str, event_id: str) -> T:
        """Return *step*'s value, or raise NotYet: whoever called tries the delivery again later."""
        try:
            return step()
        except DeliveryError:
            raise
        except Exception as error:
            self._report(what, event_id, error)
            msg = f"could not {what} yet: {text_of(error)}"
            raise NotYet(msg) from error
