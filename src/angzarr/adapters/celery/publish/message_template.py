"""Templates: Celery writes one message for a handler, and the others are written like it.

Routes, queue, task options and times are the same for all events of one handler, so Celery looks
them up once. `MessageCapture` takes the message that Celery wrote and does not send it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from celery import Celery
from celery.app.routes import MapRoute
from kombu import Exchange, Queue
from kombu.common import Broadcast
from kombu.serialization import dumps

from angzarr.adapters.celery.publish.argument_text import text_of_plain
from angzarr.errors import UnserializableEvent
from angzarr.payloads.body_sealer import IN_EVENT, IN_HEADERS, hide

#: Celery's and kombu's form of pure JSON; `json.dumps` would make an encoder a call.
_JSON: Final = json.JSONEncoder()


def json_of(data: Any) -> str:
    """*data*, a JSON value, as Celery writes it; raises UnserializableEvent."""
    try:
        return _JSON.encode(data)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the event cannot be written as JSON: {error}"
        raise UnserializableEvent(msg) from error


class MessageCapture:
    """Stands in for a producer: takes one message from Celery instead of sending it."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.message: Any = None
        self.options: dict[str, Any] = {}

    def keep(self, message: Any, options: Mapping[str, Any]) -> None:
        """Take the message and the options that it was to be sent with."""
        if getattr(self._producer, "seals_all", False):
            hide_arguments(message)
        self.message, self.options = message, dict(options)

    def __getattr__(self, name: str) -> Any:
        """Be the real producer to result backends, which prepare themselves through it."""
        return getattr(self._producer, name)


def can_use_templates(app: Celery) -> bool:
    """True if one message of a handler is like the next: no route looks at arguments."""
    routes = app.amqp.routes
    return app.conf.task_protocol == 2 and all(type(route) is MapRoute for route in routes)  # noqa: PLR2004 - Celery's name for it


def hide_arguments(message: Any) -> None:
    """Take Celery's texts of its arguments out of *message*, a task's, which is to be sealed."""
    headers, _properties, _body, told = message
    hide(headers, IN_HEADERS)
    if told:
        hide(told, IN_EVENT)


class MessageTemplate:
    """Writes the messages of one handler after its sketch, field for field as Celery would."""

    def __init__(self, app: Celery, sketch: MessageCapture) -> None:
        amqp, conf = app.amqp, app.conf
        headers, properties, (args, _, embed), told = sketch.message
        options = dict(sketch.options)
        options.pop("headers", None)
        self.task: str = headers["task"]
        self.retry = options.pop("retry", None)
        if self.retry is None:
            self.retry = conf.task_publish_retry
        policy = options.pop("retry_policy", None)
        self.policy = dict(conf.task_publish_retry_policy, **(policy or {}))
        self.dispatcher = options.pop("event_dispatcher", None)
        self.destination = Destination(amqp, conf, options)
        self._headers = headers
        self._hides_arguments: bool = getattr(sketch, "seals_all", False)
        self._own_root = headers["root_id"] == headers["id"]
        self._properties = {**properties, **options}
        self._embed = embed
        self._told = told
        self._text_most = amqp.argsrepr_maxsize
        self._text_deepest = conf.task_repr_maxlevels
        self._frame = self._frame_around(args)

    def _frame_around(self, args: Sequence[Any]) -> tuple[str, str] | None:
        """The text around the data in a body, or None where that is not plain JSON."""
        serializer = self.destination.options["serializer"]
        head, tail = "[[", f"], {{}}, {dumps(self._embed, 'json')[2]}]"
        whole = dumps((args, {}, self._embed), serializer)
        plain = ("application/json", "utf-8", f"{head}{json_of(args[0])}{tail}")
        return (head, tail) if whole == plain else None

    def headers(self, task_id: str, data: Any, event_headers: Mapping[str, Any]) -> dict[str, Any]:
        """The headers of one event's message."""
        headers = {**self._headers, "id": task_id, **event_headers}
        if not self._hides_arguments:
            headers["argsrepr"] = text_of_plain([data], self._text_most, self._text_deepest)
        if self._own_root:
            headers["root_id"] = task_id
        return headers

    def properties(self, task_id: str, reply_to: str | None = None) -> dict[str, Any]:
        """The properties of one event's message, with kombu's other arguments."""
        made = {**self._properties, "correlation_id": task_id}
        if reply_to is not None:
            made["reply_to"] = reply_to
        return made

    def way(self, *, as_text: bool) -> dict[str, Any]:
        """Where the message goes and how; *as_text*: its body is JSON already."""
        way = dict(self.destination.options)
        if as_text:
            del way["serializer"]
            way |= {"content_type": "application/json", "content_encoding": "utf-8"}
        return way

    @property
    def is_timeless(self) -> bool:
        """True if a message that is written later is the same but for what is its event's own."""
        times = (self._headers["eta"], self._headers["expires"])
        return times == (None, None) and self._own_root and not self._told

    def body(self, data: Any) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """The body as Celery's signals show it."""
        return ([data], {}, dict(self._embed))

    def text(self, data: str) -> str | None:
        """The body around *data*, which is JSON already; None: it must be serialized."""
        return f"{self._frame[0]}{data}{self._frame[1]}" if self._frame is not None else None

    def task_sent(self, headers: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of Celery's ``task-sent`` event, or None where it is not sent."""
        if not self._told:
            return None
        return {
            **self._told,
            "uuid": headers["id"],
            "root_id": headers["root_id"],
            "args": headers["argsrepr"],
            "queue": self.destination.queue_name,
            "exchange": self.destination.exchange_name,
            "routing_key": self.destination.routing_key,
        }


class Destination:
    """Where a task message goes and how: what Celery's sender finds out for each message.

    *options* are those of ``send_task``, routed; what concerns the way is taken out of them.
    """

    def __init__(self, amqp: Any, conf: Any, options: dict[str, Any]) -> None:
        queue, exchange = options.pop("queue", None), options.pop("exchange", None)
        routing_key, kind = options.pop("routing_key", None), options.pop("exchange_type", None)
        if queue is None and exchange is None:
            queue = amqp.default_queue
        if isinstance(queue, str):
            queue = amqp.queues[queue]
        self.queue: Queue | None = queue
        of_queue: Any = queue.exchange if queue is not None else None
        self.queue_name: str | None = queue.name if queue is not None else None
        if (not exchange or not routing_key) and (kind or _kind(of_queue)) == "direct":
            exchange, routing_key = "", self.queue_name
        elif exchange is None:
            exchange = of_queue.name or amqp.default_exchange
            routing_key = routing_key or queue.routing_key or conf.task_default_routing_key
        self.exchange, self.routing_key = exchange, routing_key
        self.declare = options.pop("declare", None)
        if self.declare is None:
            self.declare = _declared(queue)
        self.options = {
            # A message that no queue takes must come back; a broadcast may have no listener.
            "mandatory": options.pop("mandatory", not isinstance(queue, Broadcast)),
            "exchange": exchange,
            "routing_key": routing_key,
            "serializer": options.pop("serializer", None) or conf.task_serializer,
            "compression": options.pop("compression", None) or conf.task_compression,
            "delivery_mode": options.pop("delivery_mode", None)
            or getattr(of_queue, "delivery_mode", None)
            or conf.task_default_delivery_mode,
            "timeout": options.pop("timeout", None),
            "confirm_timeout": options.pop("confirm_timeout", None),
        }

    @property
    def exchange_name(self) -> str:
        """The exchange by name."""
        named = self.exchange.name if isinstance(self.exchange, Exchange) else self.exchange
        return str(named)


def _kind(exchange: Any) -> str:
    return str(exchange.type) if exchange is not None else "direct"


def _declared(queue: Queue | None) -> list[Queue]:
    return [queue] if queue is not None and not isinstance(queue, Broadcast) else []
