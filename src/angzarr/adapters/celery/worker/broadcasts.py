"""Commands, replies and events that every worker of a fleet reads or sends, kept within bounds.

kombu decodes them on receipt. A broadcast that is too large would end each worker in turn, and one
that Celery's code cannot read ends the loop. No publisher waits for a broadcast, so it is dropped.
Events that cannot be sent at once wait in a bounded buffer: Celery would retry on its loop until
the broker is back, and read no result and keep no time limit meanwhile.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from amqp.exceptions import AMQPError
from celery import Celery
from celery.app import control
from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher
from celery.events.receiver import EventReceiver
from kombu import Queue
from kombu.exceptions import OperationalError

from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.message_limits import take_in
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.errors import DecodeError, text_of
from angzarr.events.headers import NoNumber, read_number
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.json_bounds import Bounds

_log = logging.getLogger("angzarr.worker")

_JSON: Final = "application/json"
#: What a logical clock may say. It is taken over, counted on and sent in headers of 64 bits.
_MOST_CLOCK: Final = 2**53
_LOST: Final = (OSError, AMQPError, OperationalError)
_SELDOM: Final = LogThrottle()


class BroadcastQueue(Queue):
    """kombu's queue, whose messages are looked at and read before its consumer has them."""

    #: kombu copies these whenever it binds a queue to a channel.
    attrs = (*Queue.attrs, ("bounds", None))
    bounds: Bounds

    def consume(self, consumer_tag: str = "", callback: Any = None, *args: Any, **how: Any) -> Any:
        """Consume with *callback*, which gets what may be read and nothing else."""
        return super().consume(consumer_tag, partial(self._receive, callback), *args, **how)

    def _receive(self, callback: Callable[[Any], object], raw: Any) -> None:
        try:
            # What this makes of a message is the same message, when kombu asks for it once more.
            message = self.channel.message_to_python(raw)
            read_broadcast(message, self.bounds)
        except Exception as error:  # noqa: BLE001 - a hostile message fails in any way
            drop(self.name, error)
        else:
            callback(message)


def bounded(queue: Any, bounds: Bounds) -> BroadcastQueue:
    """*queue*, a kombu queue, as one that drops messages beyond *bounds*."""
    return BroadcastQueue(**queue.as_dict(), bounds=bounds)


def read_broadcast(message: Any, bounds: Bounds) -> None:
    """Read the body of *message*, which keeps it; raises whatever is wrong with it."""
    if message.errors:  # it could not be unpacked
        raise message.errors[0][1]
    take_in(message, bounds)
    if message.content_type != _JSON:
        msg = f"its content type {message.content_type!r:.50} is not {_JSON}"
        raise DecodeError(msg)
    _check_clock(message.headers)
    for said in _parts(message.decode()):
        if not isinstance(said, dict):
            msg = f"its body is not a mapping but {type(said).__name__}"
            raise DecodeError(msg)
        _check_clock(said)


def heed(act: Callable[..., object], *told: Any) -> None:
    """Let *act* do what a broadcast says. What fails for anything but the connection is dropped."""
    try:
        act(*told)
    except _LOST:
        raise
    except Exception as error:  # noqa: BLE001 - it would end the worker's loop
        drop("gossip", error)


def drop(source: str, error: Exception) -> None:
    """Say, at most once a minute for each *source*, that a broadcast was dropped."""
    if _SELDOM.now(source):
        _log.warning("broadcast_dropped: from %s: %s", source, text_of(error)[:500])


def _parts(body: Any) -> list[Any]:
    """The items of *body*: events may come as a list."""
    return body if isinstance(body, list) else [body]


def _check_clock(said: Mapping[str, Any] | None) -> None:
    clock = said.get("clock") if said else None
    number = read_number(clock, _MOST_CLOCK)
    if clock is not None and (isinstance(number, NoNumber) or isinstance(clock, str)):
        msg = f"its clock is not a number from 0 to {_MOST_CLOCK}"
        raise DecodeError(msg)


class _Mailbox(control.Mailbox):
    """Celery's, which reads no command and no answer that is too large.

    On RabbitMQ its queues are its own; commands find them by their exchange.
    """

    app: Celery

    def get_queue(self, hostname: str) -> Any:
        """The queue of commands for the worker *hostname*."""
        queue = super().get_queue(hostname)
        if transport_of(self.app) == "amqp":
            queue.name = f"{queue.name}.{uuid.uuid4().hex}"
        return bounded(queue, runtime_of(self.app).bounds)

    def get_reply_queue(self) -> Any:
        """The queue of answers to this process: a worker asks others when it starts."""
        return bounded(super().get_reply_queue(), runtime_of(self.app).bounds)


class Control(control.Control):
    """Celery's, with such a mailbox."""

    Mailbox = _Mailbox

    def __init__(self, app: Celery = None) -> None:
        super().__init__(app)
        self.mailbox.app = app


#: One new connection is tried at once; without it the event waits until the next connection.
ONCE: Final[Mapping[str, int]] = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}
#: Events that wait so; the oldest are forgotten.
MOST_WAITING: Final = 1000


class NonBlockingDispatcher(EventDispatcher):
    """Celery's, bounded in time and in what it keeps."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outbound_buffer: deque[Any] = deque(maxlen=MOST_WAITING)

    def _publish(
        self,
        event: Any,
        producer: Any,
        routing_key: str,
        retry: bool = False,  # noqa: FBT001, FBT002 - Celery's
        retry_policy: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super()._publish(
            event, producer, routing_key, retry, {**ONCE, **(retry_policy or {})}, **more
        )


class BoundedReceiver(EventReceiver):
    """Celery's receiver, but drops messages that are too large or no event."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        queue: Any = self.queue
        self.queue: Any = bounded(queue, runtime_of(self.app).bounds)


class NonBlockingEvents(Events):
    """Makes such dispatchers and receivers."""

    dispatcher_cls = f"{__name__}:NonBlockingDispatcher"
    receiver_cls = f"{__name__}:BoundedReceiver"
