"""What a quorum queue cannot have, as RabbitMQ itself says; what we refuse of one is no more."""

from __future__ import annotations

from typing import Any

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection, Queue

from angzarr.adapters.celery.publish.amqp import unfit_for_quorum

GIVEN: list[dict[str, Any]] = [
    {},
    {"max_priority": 5},
    {"durable": False},
    {"exclusive": True},
    {"auto_delete": True},
    *({"queue_arguments": arguments} for arguments in (
        {"x-max-priority": 5}, {"x-queue-mode": "lazy"}, {"x-queue-version": 2},
        {"x-queue-master-locator": "min-masters"}, {"x-message-ttl": 5000}, {"x-expires": 60000},
        {"x-max-length": 100}, {"x-single-active-consumer": True}, {"x-overflow": "drop-head"},
        {"x-dead-letter-exchange": "x"}, {"x-delivery-limit": 5}, {"x-own": "anything"},
    )),
]  # fmt: skip


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_we_refuse_what_rabbitmq_refuses(amqp_url: str, unique_name: str, given: Any) -> None:
    arguments = {"x-queue-type": "quorum", **given.get("queue_arguments", {})}
    queue = Queue(unique_name, **{**given, "queue_arguments": arguments})
    refused = False
    with Connection(amqp_url) as connection:
        try:
            queue(connection.channel()).declare()
        except PreconditionFailed:
            refused = True
        else:
            connection.channel().queue_delete(unique_name)
    assert bool(list(unfit_for_quorum(queue))) is refused
