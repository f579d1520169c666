"""RoadAMQP: each message of this app names its queue (9), and reaches it or is an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from amqp.exceptions import NotFound
from celery.app.amqp import AMQP
from kombu import Queue
from kombu.common import Broadcast

from angzarr.adapters.celery.celery_defaults import with_transport_defaults
from angzarr.adapters.celery.claim_batch import alight
from angzarr.adapters.celery.connection import KombusRedisConnection, RoadConnection, client_of
from angzarr.adapters.celery.publish.amqp_queues import RoadQueues, guard
from angzarr.adapters.celery.publish.message_template import Sketch
from angzarr.adapters.celery.publish.native_delay import ENTRY, way_by
from angzarr.adapters.celery.worker.consumed_queue import NamingConsumer
from angzarr.adapters.celery.worker.message_limits import read_body
from angzarr.dead_letters.names import dropped_queue
from angzarr.delivery.unreadable import damaged
from angzarr.events import headers as names


class RoadAMQP(AMQP):
    """Celery's message factory plus one header and one flag, and the transport that this app wants.

    The flag is AMQP's *mandatory*; brokers other than RabbitMQ have no use for it.
    """

    queues_cls = RoadQueues

    def Consumer(self, *args: Any, **options: Any) -> NamingConsumer:  # noqa: N802 - Celery's name
        """Return a consumer of tasks."""
        return NamingConsumer(*args, reread=self.app.reread, **options)

    def Connection(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        """Return a broker connection; an app can have kombu's own transport for Redis.

        Raises MissingExtra where the transport's client is not installed.
        """
        broker = args[0] if args else options.get("hostname")
        given = options.get("transport_options")
        options["transport_options"] = with_transport_defaults(broker, given)
        with client_of(str(broker)):
            return self._connection(*args, **options)

    def _connection(self, *args: Any, **options: Any) -> Any:
        if self.app.settings.redis_transport == "kombu":
            return KombusRedisConnection(*args, **options)
        ours = {
            "owner_lease": self.app.owner_lease,
            "on_damaged": self._take_damaged,
            "on_fetched": self.app.board,
            "on_returned": self._read_body,
            "on_put_back": partial(alight, self.app),
        }
        given = options.pop("transport_options", None) or {}
        return RoadConnection(*args, transport_options={**ours, **given}, **options)

    def _take_damaged(self, raw: bytes, queue: str, error: Exception) -> None:
        """Make a dead letter of an envelope that cannot be read; called by our Redis transport."""
        self.app.bury(damaged(raw, queue), error, getattr(error, "code", "DAMAGED_ENVELOPE"))

    def _read_body(self, message: Any) -> None:
        """Read the body of *message* at once, as whoever consumes it would; raises anything."""
        read_body(message, self.app.settings.message.bounds)

    def Queues(self, queues: Any, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        """Return the queues; those that nobody configured are guarded on RabbitMQ."""
        self.app.lay_defaults()  # the broker may be another one since they were laid
        made = super().Queues(queues, *args, **options)
        settings = self.app.settings
        made.dropped = dropped_queue(settings.prefix)
        made.named = self.app.named_queues
        if settings.amqp_queues == "guarded":
            made.guard = partial(guard, dropped=made.dropped)
            for queue in () if queues else made.values():
                made.guard(queue)
        return made

    def _create_task_sender(self) -> Callable[..., Any]:
        send = super()._create_task_sender()
        default = self.app.conf.task_default_queue

        def send_task_message(
            producer: Any, name: str, message: Any, *args: Any, **options: Any
        ) -> Any:
            # RabbitMQ would drop it when its time is over, and tell nobody. The header `expires`
            # stays: whoever receives it then makes a letter of it.
            options.pop("expiration", None)
            headers = options.get("headers")
            if headers and not isinstance(headers, names.OwnHeaders):
                # Forwarded from the message of another task, they would say where that one is.
                options["headers"] = names.without_ours(headers)
            queue = options.get("queue")
            if queue is None and options.get("exchange") is None:
                queue = default
            if queue is not None and not isinstance(queue, Broadcast):
                named = queue.name if isinstance(queue, Queue) else str(queue)
                message.headers.setdefault(names.QUEUE, named)
            delayed = str(getattr(options.get("exchange"), "name", "")) == ENTRY
            if delayed:
                way = way_by(str(options["routing_key"]), list(self.queues.values()))
                options["declare"] = [*(options.get("declare") or ()), way]
            if isinstance(producer, Sketch):
                return producer.keep(message, options)
            # A message that no queue takes must come back; a broadcast may have no listener.
            options.setdefault("mandatory", not isinstance(queue, Broadcast))
            try:
                return send(producer, name, message, *args, **options)
            except NotFound:
                if not delayed:
                    raise
                # Somebody deleted the delay since this connection declared it.
                producer.connection.declared_entities.clear()
                return send(producer, name, message, *args, **options)

        return send_task_message
