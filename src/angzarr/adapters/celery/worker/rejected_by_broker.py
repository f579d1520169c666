"""Makes dead letters of messages that RabbitMQ itself gave up.

They lie in a queue of their own on the task broker: a message came back too often, another worker
rejected it, or its time ran out. A thread in each worker's parent reads the queue on its own
connection and decodes nothing. It acknowledges a message only once it is a letter, or waits in the
schedule. A letter that cannot be written waits longer after each try and holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from amqp.exceptions import NotFound
from celery import Celery, bootsteps
from kombu import Consumer, Queue

from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.clock import SystemClock
from angzarr.dead_letters import names as quorum_queue
from angzarr.dead_letters.names import dropped_queue
from angzarr.delivery.retry_until_available import LONGEST_WAIT
from angzarr.delivery.schedule import put_arrived
from angzarr.delivery.unsettled import TOO_LARGE_WAIT
from angzarr.errors import DeliveryError, LetterTooLarge
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.worker")

#: kombu's queues for delayed messages, which go from one to the next by being dead-lettered.
_DELAYS: Final = "celery_delayed_"

_WORDS: Final = {
    "delivery_limit": "had given it back to workers too often",
    "rejected": "was told to drop it by who consumed it",
    "expired": "let it wait longer than its time to live",
    "maxlen": "had no room for it",
}


def raw_message(message: Any) -> Message:
    """*message* raw, with the name of the queue that RabbitMQ dropped it from.

    A header tells it of what is there for another reason.
    """
    headers = message.headers or {}
    envelope = Envelope(
        "", "", message.body, message.content_type or "", message.content_encoding or "",
        headers, message.properties or {}, {},
    )  # fmt: skip
    return envelope.message(str(_death(headers).get("queue") or "") or envelope.named_queue or "")


def what_happened(headers: Any) -> tuple[DeliveryError, str]:
    """The reason why RabbitMQ gave a message up, and its code, read from ``x-death``."""
    death = _death(headers)
    reason, queue = str(death.get("reason") or "unknown"), death.get("queue")
    said = _WORDS.get(reason, f"dropped it ({reason})")
    error = DeliveryError(f"RabbitMQ {said}: queue {queue!r}, x-death reason {reason!r}")
    return error, f"RABBITMQ_{reason.upper()}"


def to_come_back(message: Message, dropped: str) -> Message:
    """*message* as it is published to the queue *dropped* again, to be read as before."""
    named: Mapping[str, Any] = {names.QUEUE: message.queue} if message.queue else {}
    return replace(message, queue=dropped, headers={**message.headers, **named})


def _death(headers: Any) -> dict[str, Any]:
    """The latest entry of ``x-death`` that is not the end of a delay."""
    told = headers.get("x-death") if isinstance(headers, dict) else None
    for death in told if isinstance(told, list) else ():
        if isinstance(death, dict) and not str(death.get("queue")).startswith(_DELAYS):
            return death
    return {}


#: Makes a letter: the message, what happened, and a word for it. Raises what is away.
Bury = Callable[[Message, Exception, str], object]
#: Lets a message wait where it holds nothing, and come back. Raises what is away.
Park = Callable[[Message, timedelta], object]

#: Messages in hand at once.
PREFETCH: Final = 32
#: Seconds between two tries of one message, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: How long a message waits elsewhere that others in its queue had to wait for.
ASIDE_FOR: Final = timedelta(minutes=5)


@dataclass(slots=True)
class _HeldRejection:
    """A message as kombu gave it, and when its letter is tried again."""

    message: Any
    due: float
    wait: float = FIRST_PAUSE


class HeldRejections:
    """Makes letters of the messages that it is given; used by one thread."""

    def __init__(
        self,
        bury: Bury,
        park: Park,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = chance,
    ) -> None:
        self._bury = bury
        self._park = park
        self._monotonic = monotonic
        self._chance = chance
        self._held: list[_HeldRejection] = []
        self._seldom = LogThrottle(monotonic=monotonic)

    def take(self, message: Any) -> None:
        """Take *message* in hand; `PREFETCH` of them at most."""
        self._held.append(_HeldRejection(message, due=self._monotonic()))

    def clear(self) -> None:
        """Forget all messages: their connection is gone, and they are back in their queue."""
        self._held.clear()

    def turn(self) -> None:
        """Try all that is due, and acknowledge what has become a letter or waits elsewhere."""
        now = self._monotonic()
        self._held = [held for held in self._held if held.due > now or not self._is_done(held)]

    def _is_done(self, held: _HeldRejection) -> bool:
        found = raw_message(held.message)
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

    def _is_parked(self, held: _HeldRejection, found: Message, failed: Exception) -> bool:
        """Let *found* wait in the schedule if retrying will not help, or if it blocks others."""
        if isinstance(failed, LetterTooLarge):
            what, wait = "letter_too_large", TOO_LARGE_WAIT
        elif held.wait >= LONGEST_PAUSE and len(self._held) >= PREFETCH:
            what, wait = "letter_not_put", ASIDE_FOR
        else:
            return False
        try:
            self._park(found, wait)
        except Exception as error:  # noqa: BLE001 - it stays in hand then
            self._log_held("schedule", error)
            return False
        _log.critical("%s: task %r is tried again in %s: %s", what, found.id, wait, failed)
        return True

    def _put_off(self, held: _HeldRejection, failed: Exception) -> None:
        self._log_held("letters", failed)
        held.due = self._monotonic() + held.wait * (0.5 + self._chance())
        held.wait = min(held.wait * 2, LONGEST_PAUSE)

    def _log_held(self, cause: str, error: Exception) -> None:
        if self._seldom.now(cause):
            count = len(self._held)
            _log.critical("holding %d messages that RabbitMQ gave up: %r", count, error)


#: Seconds between two looks whether the worker stops, and that the end of a worker waits.
_TURN, _PATIENCE = 0.5, 1.0
#: Seconds; what RabbitMQ sent to a reader that is gone comes back after it, or two of it.
HEARTBEAT = 60


class RejectedMessageReader:
    """Reads the queue *name*; a message stays there until its letter is confirmed.

    One whose letter cannot be put may wait in the app's schedule meanwhile, and comes back.
    """

    def __init__(self, app: Celery, name: str, bury: Bury) -> None:
        self._app = app
        self._name = name
        self._hand = HeldRejections(bury, self._park)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._seldom = LogThrottle()

    @classmethod
    def of(cls, app: Celery) -> RejectedMessageReader:
        """The reader of *app*'s own queue."""
        return cls(app, dropped_queue(runtime_of(app).prefix), runtime_of(app).bury)

    def start(self) -> None:
        """Read from now on."""
        self._thread = threading.Thread(target=self._keep, name="angzarr-dropped", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; messages in hand stay in their queue."""
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
                self._ending.wait(pause * (0.5 + chance()))
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
        put_arrived(
            runtime_of(self._app).schedule, to_come_back(message, self._name), now + wait, now
        )

    def _say(self, text: str, *values: object) -> None:
        if self._seldom.now():
            _log.critical(text, *values)


class RejectedMessageStep(bootsteps.StartStopStep):
    """Keeps a `RejectedMessageReader` in a worker on RabbitMQ."""

    def __init__(self, worker: Any, **options: Any) -> None:
        self._reader: RejectedMessageReader | None = None
        super().__init__(worker, **options)

    def include_if(self, worker: Any) -> bool:
        """True if the broker is RabbitMQ."""
        return transport_of(worker.app) == "amqp"

    def start(self, worker: Any) -> None:
        """Read from now on."""
        self._reader = RejectedMessageReader.of(worker.app)
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
