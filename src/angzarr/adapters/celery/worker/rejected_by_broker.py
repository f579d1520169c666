"""Dropped: what RabbitMQ itself gave up becomes a dead letter like any other (decisions 5).

It lies in a queue of its own on the task broker, whatever carries dead letters: a message that came
back too often, was rejected by a worker without us, or ran out of its time. A thread in the parent
of each worker reads it on a connection of its own, and decodes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

from amqp.exceptions import NotFound
from celery import bootsteps
from kombu import Consumer, Queue

from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.rejected_in_hand import PREFETCH, Bury, Hand
from angzarr.adapters.celery.worker.rejected_message import to_come_back
from angzarr.clock import SystemClock
from angzarr.dead_letters import quorum_queue
from angzarr.dead_letters.names import dropped_queue
from angzarr.delivery.retry_until_available import LONGEST_WAIT
from angzarr.delivery.schedule import put_arrived
from angzarr.events.message import Message
from angzarr.runtime.log_throttle import Seldom

_log = logging.getLogger("angzarr.worker")

#: Seconds between two looks whether the worker stops, and that the end of a worker waits.
_TURN, _PATIENCE = 0.5, 1.0
#: Seconds; what RabbitMQ sent to a reader that is gone comes back after it, or two of it.
HEARTBEAT = 60


class DroppedReader:
    """Reads the queue *name*; a message stays there until its letter is confirmed.

    One whose letter cannot be put may wait in the app's schedule meanwhile, and comes back.
    """

    def __init__(self, app: Any, name: str, bury: Bury) -> None:
        self._app = app
        self._name = name
        self._hand = Hand(bury, self._park)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._seldom = Seldom()

    @classmethod
    def of(cls, app: Any) -> DroppedReader:
        """Return the reader of *app*'s own queue."""
        return cls(app, dropped_queue(app.settings.prefix), app.bury)

    def start(self) -> None:
        """Read from now on."""
        self._thread = threading.Thread(target=self._keep, name="angzarr-dropped", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; what is in hand stays in its queue."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _keep(self) -> None:
        pause = _TURN
        while not self._ending.is_set():
            self._hand.clear()
            try:
                with self._app.connection_for_read(heartbeat=HEARTBEAT) as connection:
                    self._read(connection)
            except Exception as error:  # noqa: BLE001 - whatever is away, it must be tried again
                self._say("dropped_not_read: from %s: %r", self._name, error)
                self._ending.wait(pause * (0.5 + random.random()))  # noqa: S311 - spreads load
                pause = min(pause * 2, LONGEST_WAIT.total_seconds())
            else:
                pause = _TURN

    def _read(self, connection: Any) -> None:
        connection.ensure_connection(max_retries=1, timeout=5)
        declare(connection, self._name)
        channel = connection.default_channel
        queue = Queue(self._name, no_declare=True)
        with Consumer(channel, [queue], on_message=self._hand.take, prefetch_count=PREFETCH):
            while not self._ending.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=_TURN)
                connection.heartbeat_check()
                self._hand.turn()

    def _park(self, message: Message, wait: timedelta) -> None:
        now = SystemClock().now()
        put_arrived(self._app.schedule, to_come_back(message, self._name), now + wait, now)

    def _say(self, text: str, *values: object) -> None:
        if self._seldom.now():
            _log.critical(text, *values)


class DroppedStep(bootsteps.StartStopStep):
    """Keeps a `DroppedReader` in a worker on RabbitMQ."""

    def __init__(self, worker: Any, **options: Any) -> None:
        self._reader: DroppedReader | None = None
        super().__init__(worker, **options)

    def include_if(self, worker: Any) -> bool:
        """Return whether the broker is RabbitMQ."""
        return transport_of(worker.app) == "amqp"

    def start(self, worker: Any) -> None:
        """Read from now on."""
        self._reader = DroppedReader.of(worker.app)
        self._reader.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002 - Celery's signature
        """Stop."""
        if self._reader is not None:
            self._reader.end()

    def terminate(self, worker: Any) -> None:
        """Stop, too: Celery terminates a worker that is part of another program."""
        self.stop(worker)


def declare(connection: Any, name: str) -> None:
    """Make sure that the queue exists; one that does is taken as it is, whatever its arguments."""
    with suppress(NotFound), connection.channel() as channel:
        channel.queue_declare(name, passive=True)
        return
    arguments = quorum_queue.arguments_for(connection.connection.server_properties)
    with connection.channel() as channel:
        channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)
