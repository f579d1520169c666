"""RabbitMQ through kombu and pika, and what RabbitMQ itself gave up."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pika
from kombu import Connection, Exchange, Queue
from tools.corpus import workshop
from tools.corpus.cases import both, ill, misconfigured, other
from tools.corpus.events import OrderPlaced
from tools.corpus.places import rabbitmq, web
from tools.corpus.scenario import Scenario
from tools.corpus.scenario import scenario as any_scenario

from angzarr.adapters.celery.worker.rejected_by_broker import raw_message, what_happened
from angzarr.analysis.ledger.entry import FailureClass

BROKER = "partner-broker"


scenario = partial(any_scenario, needs="rabbitmq")


def _publish(url: str, body: dict[str, str], **options: Any) -> None:
    with Connection(url, connect_timeout=30) as connection:
        connection.connect()
        connection.Producer().publish(body, **options)


@scenario(both(BROKER, "the partner's broker is down", "it was restarted"), needs="")
def down(order: OrderPlaced) -> None:
    _publish(f"amqp://{web.LOOPBACK}:{web.closed_port()}//", {"id": order.order_id})


@scenario(ill("the partner's broker is down", BROKER), needs="")
def down_pika(_order: OrderPlaced) -> None:
    where = f"amqp://shop:x@{web.LOOPBACK}:{web.closed_port()}/?connection_attempts=1"
    pika.BlockingConnection(pika.URLParameters(where))


@scenario(misconfigured("the password in our settings is wrong"))
def access_refused(order: OrderPlaced) -> None:
    _publish(rabbitmq.url("shop", "wrong"), {"id": order.order_id})


@scenario(misconfigured("the password in our settings is wrong"))
def access_refused_pika(_order: OrderPlaced) -> None:
    where = f"{rabbitmq.url('shop', 'wrong')}?connection_attempts=1"
    pika.BlockingConnection(pika.URLParameters(where))


@scenario(misconfigured("the virtual host in our settings does not exist"))
def no_such_vhost(order: OrderPlaced) -> None:
    _publish(rabbitmq.url(path="shop-staging"), {"id": order.order_id})


@scenario(misconfigured("our user may not write there"))
def may_not_write(_order: OrderPlaced) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.humble_url())) as connection:
        channel = connection.channel()
        channel.queue_declare("orders")


@scenario(misconfigured("the queue is there with other arguments than ours"))
def other_arguments(_order: OrderPlaced) -> None:
    with Connection(rabbitmq.url()) as connection:
        channel = connection.channel()
        Queue("corpus-orders", channel=channel, durable=True).declare()
        Queue("corpus-orders", channel=channel, durable=True, max_length=9).declare()


@scenario(misconfigured("the exchange in our settings was never made"))
def no_such_exchange(_order: OrderPlaced) -> None:
    with Connection(rabbitmq.url()) as connection:
        Exchange("ordres", channel=connection.channel(), passive=True).declare()


# -- dropped by RabbitMQ --------------------------------------------------------------------


def _dropped(app: Any, given: Scenario, how: str) -> None:
    """Let RabbitMQ itself give the message up, and bury it as a worker's parent does."""
    found = workshop.fetched(app)
    with Connection(rabbitmq.url()) as connection:
        channel = connection.channel()
        dropped = Queue(f"corpus-dropped-{how}", channel=channel)
        dropped.declare()
        arguments: dict[str, Any] = {
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dropped.name,
        }  # fmt: skip
        arguments |= {
            "limit": {"x-queue-type": "quorum", "x-delivery-limit": 2},
            "ttl": {"x-message-ttl": 20}, "full": {"x-max-length": 1}, "rejected": {},
        }[how]  # fmt: skip
        queue = Queue(f"orders-{how}", channel=channel, queue_arguments=arguments)
        queue.declare()
        for _ in range(2 if how == "full" else 1):
            connection.Producer().publish(
                found.body, routing_key=queue.name, headers=dict(found.headers),
                content_type=found.content_type, content_encoding=found.content_encoding,
            )  # fmt: skip
        lost = _wait_for(dropped, queue, how)
    error, code = what_happened(lost.headers)
    app._runtime.bury(raw_message(lost), error, code)


def _wait_for(dropped: Any, queue: Any, how: str) -> Any:
    for _ in range(500):
        if (lost := dropped.get(no_ack=True)) is not None:
            return lost
        if how in ("limit", "rejected") and (again := queue.get()) is not None:
            again.reject(requeue=how == "limit")
        time.sleep(0.01)
    raise AssertionError("RabbitMQ dropped nothing")


@scenario(
    other(FailureClass.POISON, "workers were given it three times and none came to an end"),
    road=lambda app, given: _dropped(app, given, "limit"),
)
def given_back_too_often(order: OrderPlaced) -> None: ...


@scenario(
    other(FailureClass.TOO_OLD, "it waited longer than its queue lets messages wait"),
    road=lambda app, given: _dropped(app, given, "ttl"),
)
def outlived_its_queue(order: OrderPlaced) -> None: ...


@scenario(
    other(FailureClass.UNKNOWN, "a worker without us rejected it and told nobody why"),
    road=lambda app, given: _dropped(app, given, "rejected"),
)
def rejected_by_others(order: OrderPlaced) -> None: ...


@scenario(
    misconfigured("the queue's length is limited in RabbitMQ: events are thrown out"),
    road=lambda app, given: _dropped(app, given, "full"),
)
def queue_full(order: OrderPlaced) -> None: ...
