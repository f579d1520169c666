"""Handoff: hands each message to the strategy of its task, as Celery's consumer does.

Celery makes two promises for each message, and puts its acknowledgement off to the next turn of the
loop, since a thread of the pool may ask for it. Where the pool runs the task on the loop's own
thread (solo), the message is acknowledged at once. All others of one turn wake the loop up once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError


class Handoff:
    """Takes messages for *consumer*; *celerys* is what its own method made for that."""

    def __init__(self, consumer: Any, celerys: Callable[[Any], Any]) -> None:
        self._consumer = consumer
        self._celerys = celerys
        self._strategies = consumer.strategies
        self._callbacks = consumer.on_task_message
        #: The thread in which a message is being handed over; None: none is.
        self._thread: int | None = None
        #: Calls for the loop's next turn, which many may wait for; the first wakes it up.
        self._line: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def __call__(self, message: Any) -> None:
        """Hand *message* over; raises what the strategy raises that a consumer has no answer to."""
        consumer, headers = self._consumer, message.headers
        strategy = self._strategies.get(headers.get("task")) if type(headers) is dict else None
        if strategy is None or self._reduces_prefetch():
            self._celerys(message)
            return
        before, self._thread = self._thread, get_ident()
        try:
            strategy(
                message,
                None,
                _OnLoop(self, message.ack_log_error),
                _OnLoop(self, message.reject_log_error),
                self._callbacks,
            )
        except (InvalidTaskError, ContentDisallowed) as error:
            consumer.on_invalid_task(None, message, error)
        except DecodeError as error:
            consumer.on_decode_error(message, error)
        finally:
            self._thread = before

    def _reduces_prefetch(self) -> bool:
        """True if Celery counts acknowledgements, to raise its prefetch limit bit by bit again."""
        consumer = self._consumer
        return consumer.restart_count > 0 and not consumer._maximum_prefetch_restored  # noqa: SLF001

    def run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Make *call* now if the loop's own thread asks for it, else in the loop's next turn."""
        if self._thread == get_ident():
            call(*args)
        else:
            self._line.append((call, args))
            if not self._is_woken:
                self._is_woken = True
                self._consumer.call_soon_ack(self._take)

    def _take(self) -> None:
        """Make the calls in line. Who saw that it is woken had put its own there before."""
        self._is_woken = False
        while self._line:
            call, args = self._line.popleft()
            call(*args)


class _OnLoop:
    """A call that is made on the loop's thread."""

    __slots__ = ("_call", "_handoff")

    def __init__(self, handoff: Handoff, call: Callable[..., Any]) -> None:
        self._handoff = handoff
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._handoff.run(self._call, args)
