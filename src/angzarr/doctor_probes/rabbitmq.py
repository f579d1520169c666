"""A RabbitMQ broker: the queues of the app, the exchanges before them, RabbitMQ's own delays."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from celery import Celery
from kombu.transport.native_delayed_delivery import (
    declare_native_delayed_delivery_exchanges_and_queues as declare_delays,
)

from angzarr.adapters.celery.publish import publisher
from angzarr.adapters.rabbitmq import doctor
from angzarr.adapters.rabbitmq.doctor import PORT, Management
from angzarr.adapters.rabbitmq.link import FAILURES, BrokerCluster, read_cluster, reason_of
from angzarr.dead_letters.names import dropped_queue
from angzarr.doctor import rabbitmq_rules
from angzarr.doctor.finding import Finding, Fix, Probe
from angzarr.doctor_probes import DoctorTarget
from angzarr.wiring import stores as wiring

_SIMPLE: Final = (str, int, bool)


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of the broker, if it is a RabbitMQ."""
    if not wiring.is_amqp(target.broker_url):
        return
    cluster = broker_cluster(target)
    at = f"RabbitMQ at {cluster}"

    def look() -> Iterator[Finding]:
        with doctor.linked(cluster, target.timeout.total_seconds()) as link:
            seen = doctor.examine(
                link,
                at,
                wanted(target),
                delays=_uses_delays(target.app),
                management=management(target, cluster, target.broker_url),
            )
        yield from rabbitmq_rules.findings(seen)

    yield Probe(at=at, look=look, failures=FAILURES, reason=reason_of)


def broker_cluster(target: DoctorTarget) -> BrokerCluster:
    """The address of the broker; raises ConfigurationError."""
    given = target.app.conf.broker_use_ssl
    if isinstance(given, Mapping):
        return read_cluster(target.broker_url, dict(given))
    plain = {"server_hostname": urlsplit(target.broker_url).hostname} if given else None
    return read_cluster(target.broker_url, plain)


def management(target: DoctorTarget, cluster: BrokerCluster, url: str) -> Management | None:
    """The management interface: as a person named it, else where it usually is.

    It is not guessed where the broker's password would go over the network unencrypted.
    """
    first, timeout = cluster[0], target.timeout.total_seconds() / 2
    if target.management:
        return Management(target.management, first.virtual_host, timeout=timeout)
    if first.tls is not None or url.startswith("amqps"):
        return None
    login = f"{quote(first.user, safe='')}:{quote(first.password, safe='')}"
    host = f"[{first.host}]" if ":" in first.host else first.host
    return Management(f"http://{login}@{host}:{PORT}", first.virtual_host, timeout=timeout)


def wanted(target: DoctorTarget) -> list[doctor.WantedQueue]:
    """The task queues of the app, as it declares them."""
    found = [_wanted(queue) for queue in target.app.amqp.queues.values() if not queue.no_declare]
    if target.ours:
        name = dropped_queue(target.settings.prefix)
        found.append(doctor.WantedQueue(name, {"x-queue-type": "quorum"}, strict=False))
    return found


def declare_queue(target: DoctorTarget, fix: Fix) -> str:
    """Declare a queue that is missing as the app does; raises what kombu raises."""
    (name,) = fix.arguments
    with target.app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=target.timeout.total_seconds())
        if target.ours and name == dropped_queue(target.settings.prefix):
            importlib.import_module("angzarr.adapters.celery.worker.rejected_by_broker").declare(
                connection, name
            )
        else:
            target.app.amqp.queues[name](connection.default_channel).declare()
    return ""


def declare_delay_queues(target: DoctorTarget, _fix: Fix) -> str:
    """Declare RabbitMQ's own delay queues, as a worker does."""
    with target.app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=target.timeout.total_seconds())
        declare_delays(connection, "quorum")
    return "start the workers as well: each binds its queues to the end of the chain"


def _wanted(queue: Any) -> doctor.WantedQueue:
    given = (queue.queue_arguments or {}).items()
    arguments = {name: value for name, value in given if isinstance(value, _SIMPLE)}
    exchange = queue.exchange
    if exchange is None:
        return doctor.WantedQueue(str(queue.name), arguments)
    return doctor.WantedQueue(
        name=str(queue.name),
        arguments=arguments,
        exchange=str(exchange.name),
        exchange_type=str(exchange.type or "direct"),
        exchange_durable=bool(exchange.durable),
        exchange_auto_delete=bool(exchange.auto_delete),
    )


def _uses_delays(app: Celery) -> bool:
    return any(publisher.native_delay(app, queue) for queue in app.amqp.queues.values())
