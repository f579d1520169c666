"""Kafka through confluent-kafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tools.corpus.cases import both, ill, misconfigured
from tools.corpus.events import OrderPlaced
from tools.corpus.normal import show_port
from tools.corpus.places import web
from tools.corpus.places.servers import address
from tools.corpus.scenario import scenario

STREAM = "event-stream"


def _brokers() -> str:
    found = address("kafka")
    show_port(int(found.rpartition(":")[2]), 9092)
    return found


def _send(brokers: str, topic: str, value: bytes, **options: Any) -> None:
    """Produce one message and raise what became of it."""
    failed: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": brokers, "log_level": 0, **options},
    )
    producer.produce(topic, value, on_delivery=lambda error, _message: failed.append(error))
    producer.flush(5)
    if failed and failed[0] is not None:
        raise KafkaException(failed[0])


@scenario(both(STREAM, "no broker answers", "the brokers are back"))
def down(_order: OrderPlaced) -> None:
    where = f"{web.LOOPBACK}:{web.closed_port()}"
    Producer({"bootstrap.servers": where, "log_level": 0}).list_topics(timeout=0.3)


@scenario(ill("no broker took it in time", STREAM))
def not_in_time(order: OrderPlaced) -> None:
    where = f"{web.LOOPBACK}:{web.closed_port()}"
    _send(where, "orders", order.sku.encode(), **{"message.timeout.ms": 200})


@scenario(misconfigured("the topic in our settings was never made"), needs="kafka")
def unknown_topic(order: OrderPlaced) -> None:
    fast = {"allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 100}
    _send(_brokers(), "ordres", order.sku.encode(), **fast)


@scenario(
    misconfigured("the message is larger than our own client's setting lets it be", group_events=3),
    needs="kafka",
)
def larger_than_we_may(_order: OrderPlaced) -> None:
    _send(_brokers(), "orders", b"x" * 2_000_000, **{"message.max.bytes": 1_000_000})


@scenario(misconfigured("the brokers speak plain text, and our settings say TLS"), needs="kafka")
def not_tls(_order: OrderPlaced) -> None:
    admin = AdminClient(
        {"bootstrap.servers": _brokers(), "security.protocol": "ssl", "log_level": 0}
    )
    admin.list_topics(timeout=0.5)


@scenario(misconfigured("a setting of the client has a value that it cannot have"))
def invalid_setting(order: OrderPlaced) -> None:
    _send("127.0.0.1:9092", "orders", order.sku.encode(), acks="most")
