"""Hand: the messages in hand of who reads what RabbitMQ gave up, each with a wait of its own.

One whose letter is not put must keep neither the others nor the processor: it waits longer each
time, and where it would keep others it waits in the schedule. None is let go before it is a
letter or there.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from angzarr.adapters.celery.worker.rejected_message import message_of, what_happened
from angzarr.delivery.executor import TOO_LARGE_WAIT
from angzarr.errors import LetterTooLarge
from angzarr.events.message import Message
from angzarr.runtime.log_throttle import Seldom

_log = logging.getLogger("angzarr.worker")

#: Makes a letter: the message, what happened, and a word for it. Raises what is away.
Bury = Callable[[Message, Exception, str], object]
#: Lets a message wait where it holds nothing, and come back. Raises what is away.
Park = Callable[[Message, timedelta], object]

#: Messages in hand at once.
PREFETCH: Final = 32
#: Seconds between two tries of one message, at first and at most.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
#: How long a message waits elsewhere that others in its queue had to wait for.
ASIDE_FOR: Final = timedelta(minutes=5)


@dataclass(slots=True)
class _Held:
    """A message as kombu gave it, and when its letter is tried again."""

    message: Any
    due: float
    wait: float = FIRST_WAIT


class Hand:
    """Makes letters of the messages that it is given; used by one thread."""

    def __init__(
        self,
        bury: Bury,
        park: Park,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._bury = bury
        self._park = park
        self._monotonic = monotonic
        self._chance = chance
        self._held: list[_Held] = []
        self._seldom = Seldom(monotonic=monotonic)

    def take(self, message: Any) -> None:
        """Take *message* in hand; `PREFETCH` of them at most."""
        self._held.append(_Held(message, due=self._monotonic()))

    def clear(self) -> None:
        """Forget all messages: their connection is gone, and they are back in their queue."""
        self._held.clear()

    def turn(self) -> None:
        """Try all that is due, and acknowledge what has become a letter or waits elsewhere."""
        now = self._monotonic()
        self._held = [held for held in self._held if held.due > now or not self._is_done(held)]

    def _is_done(self, held: _Held) -> bool:
        found = message_of(held.message)
        error, code = what_happened(held.message.headers or {})
        try:
            self._bury(found, error, code)
        except Exception as failed:  # noqa: BLE001 - the message must not be lost, whatever fails
            if not self._is_parked(held, found, failed):
                self._put_off(held, failed)
                return False
        else:
            _log.error("dropped_by_rabbitmq: task %r of queue %r: %s", found.id, found.queue, error)
        held.message.ack()
        return True

    def _is_parked(self, held: _Held, found: Message, failed: Exception) -> bool:
        """Let *found* wait elsewhere if trying on is in vain, or if it keeps others."""
        if isinstance(failed, LetterTooLarge):
            what, wait = "letter_too_large", TOO_LARGE_WAIT
        elif held.wait >= LONGEST_WAIT and len(self._held) >= PREFETCH:
            what, wait = "letter_not_put", ASIDE_FOR
        else:
            return False
        try:
            self._park(found, wait)
        except Exception as error:  # noqa: BLE001 - it stays in hand then
            self._say("schedule", error)
            return False
        _log.critical("%s: task %r is tried again in %s: %s", what, found.id, wait, failed)
        return True

    def _put_off(self, held: _Held, failed: Exception) -> None:
        self._say("letters", failed)
        held.due = self._monotonic() + held.wait * (0.5 + self._chance())
        held.wait = min(held.wait * 2, LONGEST_WAIT)

    def _say(self, cause: str, error: Exception) -> None:
        if self._seldom.now(cause):
            count = len(self._held)
            _log.critical("holding %d messages that RabbitMQ gave up: %r", count, error)
