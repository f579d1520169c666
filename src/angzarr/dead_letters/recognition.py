"""Recognition: what other systems say of messages that they gave up, as far as it is known. Pure.

Kafka Connect, Spring, RabbitMQ, SQS, Pub/Sub and Lambda each have words of their own for why and
from where; CloudEvents and Debezium for what it is. Nothing of it is trusted: it is shown, searched
and grouped by, never acted on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from angzarr.dead_letters.letter import cut_message, cut_stack
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.text import valid_text
from angzarr.events.headers import EVENT_ID, EVENT_TYPE
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

#: Bodies that are looked into, in bytes, and what they may parse to.
_LOOKED_INTO: Final = 256 * 1024
_BOUNDS: Final = Bounds(nodes=20_000, depth=50)
#: Characters of a name.
_LONGEST: Final = 500
_INT32, _INT64 = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """The known facts of a record; absent texts are empty."""

    #: Whose words these are, e.g. ``Kafka Connect``.
    system: str = ""
    error_type: str = ""
    error_message: str = ""
    error_stack: str = ""
    #: Where it came from, in words.
    origin: str = ""
    #: Connector, consumer group, function or task that failed.
    component: str = ""
    event_type: str = ""
    #: Task and id of a Celery message.
    task: str = ""
    event_id: str = ""
    correlation_id: str = ""
    #: Further facts by their names.
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The failure in one sentence; empty where nothing is known."""
        if not self.system:
            return ""
        why = ": ".join(filter(None, (self.error_type, self.error_message.partition("\n")[0])))
        came = f"from {self.origin}" if self.origin else ""
        return f"{self.system} gave it up" + "".join(f", {one}" for one in (came, why) if one)

    @property
    def known(self) -> dict[str, str]:
        """The known facts, by name, for people."""
        told = {"given_up_by": self.system, "origin": self.origin, "component": self.component}
        return {**told, **self.more}


_Read: TypeAlias = Callable[[ForeignRecord], Recognised | None]


def recognise(raw: bytes, content_type: str, record: ForeignRecord | None) -> Recognised:
    """The facts about bytes that are no letter, and about the record that carried them."""
    record = record or ForeignRecord(broker="")
    found = next((told for read in _READERS if (told := read(record))), Recognised())
    task, task_id = _name(record.header("task")), _name(record.header("id"))
    if task and task_id:
        named = _name(record.header(EVENT_ID)) or task_id
        return replace(
            found, component=task, event_type=_name(record.header(EVENT_TYPE)) or task, task=task,
            event_id=named, correlation_id=_correlation(record),
        )  # fmt: skip
    event = _cloud_event(raw, content_type, record) or _debezium(raw)
    return replace(
        found,
        event_type=_name(event.get("type")) or found.event_type,
        correlation_id=found.correlation_id or _correlation(record),
        more={**found.more, **{f"event_{name}": _name(one) for name, one in event.items()}},
    )


def _connect(record: ForeignRecord) -> Recognised | None:
    """Kafka Connect, with ``errors.deadletterqueue.context.headers.enable``."""
    said = _Said(record, "__connect.errors.")
    if not said.there:
        return None
    return Recognised(
        system="Kafka Connect",
        error_type=said.text("exception.class.name"),
        error_message=cut_message(said.long("exception.message")),
        error_stack=cut_stack(said.long("exception.stacktrace")),
        origin=_kafka(said.text("topic"), said.text("partition"), said.text("offset")),
        component=said.text("connector.name"),
        more=said.more({"stage": "stage", "task": "task.id", "class": "class.name"}),
    )


def _spring_kafka(record: ForeignRecord) -> Recognised | None:
    """Spring's `DeadLetterPublishingRecoverer`; its numbers are big-endian bytes."""
    said = _Said(record, "kafka_dlt-")
    if not said.there:
        return None
    return Recognised(
        system="Spring Kafka",
        error_type=said.text("exception-cause-fqcn") or said.text("exception-fqcn"),
        error_message=cut_message(said.long("exception-message")),
        error_stack=cut_stack(said.long("exception-stacktrace")),
        origin=_kafka(
            said.text("original-topic"),
            said.number("original-partition"),
            said.number("original-offset"),
        ),
        component=said.text("original-consumer-group"),
        event_type=_name(record.header("__TypeId__")),
        more=said.more({"thrown": "exception-fqcn"}),
    )


def _x_death(record: ForeignRecord) -> Recognised | None:
    """RabbitMQ's own dead-lettering, and Spring AMQP's recoverer beside it."""
    deaths = record.header("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths else None
    said = _Said(record, "x-exception-")
    if not isinstance(death, dict) and not said.there:
        return None
    death = death if isinstance(death, dict) else {}
    reason, queue = _name(death.get("reason")), _name(death.get("queue"))
    queue = queue or _name(record.header("x-original-routingKey"))
    count = _name(death.get("count"))
    message = said.long("message") or _DEATHS.get(reason, reason and f"it was {reason}")
    return Recognised(
        system="RabbitMQ" if death else "Spring AMQP",
        error_type=f"RABBITMQ_{reason.upper()}" if reason else "",
        error_message=cut_message(message),
        error_stack=cut_stack(said.long("stacktrace")),
        origin=f"queue {queue}" if queue else "",
        event_type=_name(record.properties.get("type")),
        more={"deaths": count} if count else {},
    )


def _lambda(record: ForeignRecord) -> Recognised | None:
    """AWS Lambda's dead-letter queue for asynchronous calls."""
    code, message = record.header("ErrorCode"), record.header("ErrorMessage")
    if code is None or message is None:
        return None
    return Recognised(
        system="AWS Lambda",
        error_type=f"LAMBDA_{_name(code)}",
        error_message=cut_message(_text(message)),
        more={"request": _name(record.header("RequestID"))},
    )


def _redrive(record: ForeignRecord) -> Recognised | None:
    """SQS's redrive policy, which says from where and not why."""
    source = _name(record.properties.get("DeadLetterQueueSourceArn"))
    if not source:
        return None
    count = _name(record.properties.get("ApproximateReceiveCount"))
    return Recognised(
        system="SQS",
        error_type="SQS_MAX_RECEIVE_COUNT",
        error_message="it was received too often and never deleted",
        origin=f"queue {source}",
        more={"received": count} if count else {},
    )


def _pubsub(record: ForeignRecord) -> Recognised | None:
    """Pub/Sub's dead-letter policy, which says from where and not why."""
    source = _name(record.header("CloudPubSubDeadLetterSourceSubscription"))
    if not source:
        return None
    count = _name(record.header("CloudPubSubDeadLetterSourceDeliveryCount"))
    return Recognised(
        system="Pub/Sub",
        error_type="PUBSUB_MAX_DELIVERY_ATTEMPTS",
        error_message="it was delivered too often and never acknowledged",
        origin=f"subscription {source}",
        more={"delivered": count} if count else {},
    )


_READERS: Final[tuple[_Read, ...]] = (
    _connect, _spring_kafka, _x_death, _lambda, _redrive, _pubsub,
)  # fmt: skip
_DEATHS: Final = {
    "delivery_limit": "it was given back to consumers too often",
    "rejected": "its consumer told RabbitMQ to drop it",
    "expired": "it waited longer than its time to live",
    "maxlen": "its queue had no room for it",
}
#: What may name a correlation id, in headers and properties of all kinds.
_CORRELATION: Final = frozenset(
    {"correlation_id", "correlation-id", "correlationid", "x-correlation-id", "jmscorrelationid",
     "kafka_correlationid", "ce_correlationid", "ce-correlationid"}
)  # fmt: skip
#: How CloudEvents in binary mode are written: Kafka and HTTP, AMQP twice.
_CLOUD_EVENTS: Final = ("ce_", "ce-", "cloudEvents:", "cloudEvents_")
_OF_A_CLOUD_EVENT: Final = ("type", "id", "source", "subject", "time")


class _Said:
    """The headers of *record* that begin with *prefix*, by the rest of their names."""

    def __init__(self, record: ForeignRecord, prefix: str) -> None:
        found = [(name, value) for name, value in record.headers if name.startswith(prefix)]
        self._values = {name.removeprefix(prefix): value for name, value in reversed(found)}

    @property
    def there(self) -> bool:
        return bool(self._values)

    def text(self, name: str) -> str:
        return _name(self._values.get(name))

    def long(self, name: str) -> str:
        return _text(self._values.get(name))

    def number(self, name: str) -> str:
        value = self._values.get(name)
        if isinstance(value, bytes) and len(value) in {_INT32, _INT64}:
            return str(int.from_bytes(value, signed=True))
        return _name(value)

    def more(self, names: Mapping[str, str]) -> dict[str, str]:
        """The texts under *names*, by the names shown, where there are any."""
        found = {shown: self.text(name) for shown, name in names.items()}
        return {shown: text for shown, text in found.items() if text}


def _cloud_event(raw: bytes, content_type: str, record: ForeignRecord) -> dict[str, Any]:
    for prefix in _CLOUD_EVENTS:
        if record.header(f"{prefix}specversion") is not None:
            told = {one: record.header(f"{prefix}{one}") for one in _OF_A_CLOUD_EVENT}
            return {name: value for name, value in told.items() if value is not None}
    body = json_object(raw) or {}
    structured = content_type.lower().startswith("application/cloudevents")
    if body and (structured or "specversion" in body) and isinstance(body.get("type"), str):
        return {one: body[one] for one in _OF_A_CLOUD_EVENT if one in body}
    return {}


def _debezium(raw: bytes) -> dict[str, Any]:
    """Table and kind of a change, of a body with or without its schema."""
    body = json_object(raw) or {}
    inner = body.get("payload")
    change: dict[str, Any] = inner if isinstance(inner, dict) else body
    source = change.get("source")
    if not isinstance(source, dict) or not isinstance(change.get("op"), str):
        return {}
    if not source.get("connector"):
        return {}
    place = [_name(source.get(one)) for one in ("db", "schema", "table", "collection")]
    kind = _CHANGES.get(change["op"], _name(change["op"]))
    return {
        "type": f"{'.'.join(filter(None, place))} {kind}",
        "source": f"debezium {_name(source['connector'])}",
    }


_CHANGES: Final = {"c": "created", "u": "updated", "d": "deleted", "r": "read", "t": "truncated"}


def json_object(raw: bytes) -> dict[str, Any] | None:
    """*raw* as a JSON object; None where it is none, or too large to look into."""
    if raw[:1] != b"{" or len(raw) > _LOOKED_INTO:
        return None
    try:
        check_json(raw, _BOUNDS)
        found = json.loads(raw.decode())
    except (TooMuch, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _correlation(record: ForeignRecord) -> str:
    for name, value in (*record.headers, *record.properties.items()):
        if name.lower() in _CORRELATION and (text := _name(value)):
            return text
    return ""


def _kafka(topic: str, partition: str, offset: str) -> str:
    parts = (("topic", topic), ("partition", partition), ("offset", offset))
    return ", ".join(f"{what} {text}" for what, text in parts if text)


def _name(value: Any) -> str:
    """*value* as a text of one line and a bounded length."""
    return " ".join(_text(value)[:_LONGEST].split())


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    return str(value) if abs(value) < 2**64 else ""
