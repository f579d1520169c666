from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.recognition import recognise
from angzarr.dead_letters.record import ForeignRecord

STACK = b"java.lang.IllegalStateException: no stock\n\tat shop.Listener.on(Listener.java:7)\n"


def record(*headers: tuple[str, Any], **more: Any) -> ForeignRecord:
    return ForeignRecord(broker="b", headers=headers, **more)


CONNECT = record(
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"94"),
    ("__connect.errors.connector.name", b"sink-file"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.exception.class.name", b"org.DataException"),
    ("__connect.errors.exception.message", b"no such column"),
    ("__connect.errors.exception.stacktrace", STACK),
)
SPRING = record(
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 1)),
    ("kafka_dlt-original-offset", struct.pack(">q", 17)),
    ("kafka_dlt-original-consumer-group", b"shop"),
    ("kafka_dlt-exception-fqcn", b"org.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"Listener failed; no stock"),
    ("kafka_dlt-exception-stacktrace", STACK),
    ("__TypeId__", b"com.example.Order"),
)
X_DEATH = record(
    ("x-death", [{"queue": "side", "reason": "expired", "count": 1, "exchange": ""}]),
    ("task", "tasks.a"),
    ("id", "id-a"),
    properties={"correlation_id": "c-1"},
)
SPRING_AMQP = record(
    ("x-exception-message", "no stock"),
    ("x-exception-stacktrace", STACK.decode()),
    ("x-original-exchange", ""),
    ("x-original-routingKey", "orders"),
)
LAMBDA = record(("ErrorCode", "200"), ("ErrorMessage", "boom"), ("RequestID", "r-1"))
REDRIVE = record(
    properties={
        "DeadLetterQueueSourceArn": "arn:aws:sqs:eu:1:orders",
        "ApproximateReceiveCount": "4",
    }
)
PUBSUB = record(
    ("CloudPubSubDeadLetterSourceSubscription", "orders"),
    ("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
)


@pytest.mark.parametrize(
    ("given_up", "system", "error_type", "message", "origin", "component"),
    [
        (CONNECT, "Kafka Connect", "org.DataException", "no such column",
         "topic orders, partition 0, offset 94", "sink-file"),
        (SPRING, "Spring Kafka", "java.lang.IllegalStateException", "Listener failed; no stock",
         "topic orders, partition 1, offset 17", "shop"),
        (X_DEATH, "RabbitMQ", "RABBITMQ_EXPIRED", "it waited longer than its time to live",
         "queue side", "tasks.a"),
        (SPRING_AMQP, "Spring AMQP", "", "no stock", "queue orders", ""),
        (LAMBDA, "AWS Lambda", "LAMBDA_200", "boom", "", ""),
        (REDRIVE, "SQS", "SQS_MAX_RECEIVE_COUNT", "it was received too often and never deleted",
         "queue arn:aws:sqs:eu:1:orders", ""),
        (PUBSUB, "Pub/Sub", "PUBSUB_MAX_DELIVERY_ATTEMPTS",
         "it was delivered too often and never acknowledged", "subscription orders", ""),
    ],
    ids=["connect", "spring-kafka", "x-death", "spring-amqp", "lambda", "sqs", "pubsub"],
)  # fmt: skip
def test_why_and_from_where_are_known_of_what_others_gave_up(
    given_up, system, error_type, message, origin, component
):
    told = recognise(b"x", "", given_up)
    assert (told.system, told.error_type, told.error_message) == (system, error_type, message)
    assert (told.origin, told.component) == (origin, component)
    assert system in told.said
    assert message in told.said


def test_stacks_types_and_ids_are_known():
    assert recognise(b"", "", CONNECT).error_stack == STACK.decode()
    assert recognise(b"", "", SPRING).event_type == "com.example.Order"
    told = recognise(b"[[],{},{}]", "application/json", X_DEATH)
    assert (told.event_type, told.event_id, told.correlation_id) == ("tasks.a", "id-a", "c-1")
    told = recognise(b"", "", record(("task", "tasks.b"), ("id", "id-b")))
    assert (told.system, told.component, told.event_id) == ("", "tasks.b", "id-b")


EVENT = {"specversion": "1.0", "type": "order.placed", "source": "/shop", "id": "ce-1"}


@pytest.mark.parametrize(
    ("raw", "content_type", "carried"),
    [
        (json.dumps({**EVENT, "data": {}}).encode(), "application/cloudevents+json; charset=UTF-8",
         record()),
        (json.dumps({**EVENT, "data": {}}).encode(), "application/json", record()),
        (b"{}", "application/json", record(*((f"ce_{k}", v.encode()) for k, v in EVENT.items()))),
        (b"\xff", "", record(*((f"ce-{k}", v) for k, v in EVENT.items()))),
        (b"\xff", "", record(*((f"cloudEvents:{k}", v) for k, v in EVENT.items()))),
    ],
    ids=["structured", "by its body", "kafka", "http", "amqp"],
)  # fmt: skip
def test_cloud_events_are_known_in_all_modes(raw, content_type, carried):
    told = recognise(raw, content_type, carried)
    assert (told.event_type, told.event_id) == ("order.placed", "")  # not an event of ours
    assert (told.known["event_source"], told.known["event_id"]) == ("/shop", "ce-1")


@pytest.mark.parametrize("with_schema", [True, False])
def test_changes_of_debezium_are_known(with_schema):
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "customers"}
    change = {"before": None, "after": {"id": 1}, "source": source, "op": "c"}
    body = {"schema": None, "payload": change} if with_schema else change
    told = recognise(json.dumps(body).encode(), "application/json", record())
    assert told.event_type == "shop.public.customers created"
    assert told.known["event_source"] == "debezium postgresql"


NAMES = st.sampled_from(
    [
        *("ce_specversion", "ce_type", "ce-id", "correlation_id"),
        *(name for one in (CONNECT, SPRING, X_DEATH, SPRING_AMQP) for name, _ in one.headers),
        *(name for one in (LAMBDA, PUBSUB) for name, _ in one.headers),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=20) | st.binary(max_size=20) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
BODIES = ANYTHING.map(lambda value: json.dumps(value, default=str).encode()) | st.binary(
    max_size=40
)


@given(BODIES, st.text(max_size=40), st.lists(st.tuples(NAMES, ANYTHING), max_size=6))
def test_whatever_stands_there_is_text_of_a_bounded_length(raw, content_type, headers):
    told = recognise(raw, content_type, record(*headers))
    names = (told.system, told.error_type, told.origin, told.component, told.event_type)
    for text in (*names, told.event_id, told.correlation_id, told.said, *told.known.values()):
        assert isinstance(text, str)
        assert len(text) <= 6_000
        text.encode()
