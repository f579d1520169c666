"""A consumer on a transport of ours in an event loop turned by hand, as Celery turns its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kombu import Consumer, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from adapters.redis_sides import connect
from polling import PATIENCE


class Looped:
    """One consumer, its loop, and what it was given; nothing happens but in `turn`."""

    def __init__(
        self,
        url: str,
        *queues: str,
        prefetch: int = 0,
        ack: bool = False,
        make: Callable[..., Any] = connect,
        **options: Any,
    ):
        self.messages: list[Any] = []
        self._acks = ack
        self.connection = make(url, **options)
        self.hub = Hub()
        self.connection.register_with_event_loop(self.hub)
        # What Celery's loop does not survive: the tests see it as the worker would.
        self.hub.propagate_errors = self.connection.connection_errors
        self.channel = self.connection.channel()
        self.consumer = Consumer(
            self.channel,
            [Queue(queue, channel=self.channel) for queue in queues],
            on_message=self._take,
            prefetch_count=prefetch or None,
        )
        self.consumer.consume()
        self._turns = self.hub.create_loop()

    def _take(self, message: Any) -> None:
        self.messages.append(message)
        if self._acks:
            message.ack()

    @property
    def bodies(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def turn(self, seconds: float = 0.02) -> None:
        """Let the loop go round once, for *seconds* at most."""
        self.hub.call_later(seconds, _nothing)
        next(self._turns)

    def until(self, truth: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not truth():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {seconds} s for {what}; given so far: {self.bodies!r:.300}")
            self.turn()

    def rest(self, seconds: float = 0.3) -> None:
        """Turn for *seconds*."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.turn()


@contextmanager
def looped(url: str, *queues: str, **options: Any) -> Iterator[Looped]:
    """A consumer in a loop of its own, closed at the end."""
    before = get_event_loop()
    worker = Looped(url, *queues, **options)
    try:
        yield worker
    finally:
        worker.connection.release()
        worker.hub.close()
        set_event_loop(before)


def _nothing() -> None:
    """Wake the loop."""
