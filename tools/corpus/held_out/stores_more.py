"""Redis and brokers in ways that the other themes do not have."""

from __future__ import annotations

from typing import Any

import pika
import redis
from confluent_kafka import Consumer, Producer
from kombu import Connection, Exchange, Queue
from tools.corpus.cases import both, defect, ill, misconfigured, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import rabbitmq, redis_places, web
from tools.corpus.scenario import scenario

CACHE = "cache"


def _said(answer: bytes) -> Any:
    return redis_places.client(redis_places.saying(answer)).get("SKU-7")


@scenario(both(CACHE, "its copies are too far behind for a write", "they have caught up"))
def no_replicas(_order: OrderPlaced) -> None:
    _said(b"-NOREPLICAS Not enough good replicas to write.\r\n")


@scenario(both(CACHE, "it cannot write its data to the disk", "the disk has room"))
def cannot_save(_order: OrderPlaced) -> None:
    said = b"-MISCONF Redis is configured to save RDB snapshots, but it is currently unable to"
    _said(said + b" persist on disk.\r\n")


@scenario(ill("a script runs without end", CACHE))
def busy_script(_order: OrderPlaced) -> None:
    said = b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL"
    _said(said + b" or SHUTDOWN NOSAVE.\r\n")


@scenario(misconfigured("it is a cluster, and our settings say it is none"))
def moved(_order: OrderPlaced) -> None:
    _said(b"-MOVED 3999 10.0.3.9:6381\r\n")


@scenario(misconfigured("protected mode: it was never set up for other hosts"))
def protected(_order: OrderPlaced) -> None:
    said = b"-DENIED Redis is running in protected mode because protected mode is enabled"
    _said(said + b" and no password is set for the default user.\r\n")


@scenario(misconfigured("the address of the cache names another scheme"))
def no_scheme(_order: OrderPlaced) -> None:
    redis.Redis.from_url("cache.internal:6379")


@scenario(defect("a script calls what is none"))
def script_error(order: OrderPlaced) -> None:
    client = redis_places.client(redis_places.server().url)
    client.eval("return redis.call('get')", 0)


@scenario(defect("it adds to a text"))
def not_a_number(order: OrderPlaced) -> None:
    client = redis_places.client(redis_places.server().url)
    client.set("name", order.sku)
    client.incr("name")


@scenario(misconfigured("the host of the cache is misspelt"))
def unknown_cache(_order: OrderPlaced) -> None:
    redis_places.client("redis://cache.internal.invalid:6379").get("SKU-7")


@scenario(misconfigured("the queue was never made on this broker"), needs="rabbitmq")
def no_queue(_order: OrderPlaced) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url())) as line:
        line.channel().queue_declare("invoices", passive=True)


@scenario(misconfigured("the exchange is there with another type"), needs="rabbitmq")
def other_type(_order: OrderPlaced) -> None:
    with Connection(rabbitmq.url()) as line:
        for kind in ("direct", "fanout"):
            Exchange("corpus-events", type=kind, durable=False)(line.default_channel).declare()


@scenario(well("another worker reads the queue alone", "their-broker", group_events=3),
          needs="rabbitmq")  # fmt: skip
def exclusive(_order: OrderPlaced) -> None:
    with Connection(rabbitmq.url()) as line, Connection(rabbitmq.url()) as other:
        Queue("corpus-own", exclusive=True)(line.default_channel).declare()
        Queue("corpus-own", exclusive=True)(other.default_channel).declare()


@scenario(misconfigured("a setting of the client is none that it has"))
def kafka_setting(_order: OrderPlaced) -> None:
    Producer({"bootstrap.severs": "127.0.0.1:9092"})


@scenario(defect("it reads from a consumer that it closed"))
def consumer_closed(_order: OrderPlaced) -> None:
    consumer = Consumer({"group.id": "shop", "bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    consumer.close()
    consumer.poll(0.1)


@scenario(ill("more is written than goes out: the client's queue is full", "event-stream"))
def queue_full(_order: OrderPlaced) -> None:
    where = f"{web.LOOPBACK}:{web.closed_port()}"
    limit = {"queue.buffering.max.messages": 1, "message.timeout.ms": 500}
    producer = Producer({"bootstrap.servers": where, "log_level": 0, **limit})
    for _ in range(3):
        producer.produce("orders", b"x")
