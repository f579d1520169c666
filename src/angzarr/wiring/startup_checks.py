"""Checks: refuse to start where a server is not configured, not shared or not fit."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final

from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable, UnsafeSetting
from angzarr.settings.sagas import SECTION, SagaCompensationSettings
from angzarr.settings.settings import Settings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.configuration import open_configuration
from angzarr.wiring.event_store import orders_of
from angzarr.wiring.fact_store import open_fact_store
from angzarr.wiring.process import ProcessParts, open_poster

_log: Final = logging.getLogger("angzarr.sagas")


def check_servers(parts: ProcessParts) -> None:
    """Refuse servers that the app's settings cannot make one of, or that would lose messages.

    Connects to none but Redis; one that is away is not asked.
    """
    settings, broker = parts.context.settings, parts.context.broker_url
    check_configured(settings, broker)
    _check_spool(settings)
    check_store(settings, broker)
    with _start():
        _check_broker(parts)


def check_configured(settings: Settings, broker: str) -> None:
    """Refuse servers that settings cannot make one of, or that would lose messages; asks none."""
    wiring.open_claims(settings, broker)
    letter_wiring.open_letterbox(settings, broker).close()
    if settings.configuration.url:
        open_configuration(settings, broker).close()
    if (payloads := payload_wiring.open_for_messages(settings, broker)) is not None:
        payloads.close()
    payload_wiring.open_sealer(settings)
    _check_facts(settings, broker)
    if wiring.is_embedded(broker):
        return
    if settings.dlq.backend == "channel":
        msg = "dlq.backend 'channel' dies with its process: use it with a memory broker only"
        raise ConfigurationError(msg)
    if wiring.store_url(settings, broker).startswith("memory"):
        msg = (
            "a memory store is not shared by workers, and what waits in it dies with one:"
            " set store to Redis or PostgreSQL"
        )
        raise ConfigurationError(msg)


def _check_facts(settings: Settings, broker: str) -> None:
    """Refuse a database of facts without its driver, and budgets without such a database."""
    if wiring.facts_url(settings, broker) is not None:
        open_fact_store(settings, broker).close()
    elif settings.costs.budgets:
        msg = (
            "costs.budgets are added up from facts, and facts are kept in no database: set"
            " facts.url, e.g. facts: {url: postgresql+psycopg://localhost/shop}"
        )
        raise ConfigurationError(msg)


def _check_spool(settings: Settings) -> None:
    """Refuse a spool that takes no files: a letter in it would let its message go."""
    if not letter_wiring.has_spool(settings):
        return
    try:
        letter_wiring.open_spool(settings.dlq).prepare()
    except DeadLetterQueueUnavailable as error:
        msg = f"{error}; dlq.spool.path must be a folder that this user may write to"
        raise ConfigurationError(msg) from error


def check_store(settings: Settings, broker: str) -> None:
    """Refuse a store that would delete claims and delays to make room; not one that is away."""
    with _start():
        _check_store(settings, broker)


def _check_store(settings: Settings, broker: str) -> None:
    url = wiring.store_url(settings, broker)
    if url.startswith("redis"):
        _eviction().check_store(url)


def store_trouble(parts: ProcessParts) -> str:
    """The reason for which a worker that starts now would refuse the app's Redis; else empty."""
    _eviction().forget_asked()
    try:
        _check_store(parts.context.settings, parts.context.broker_url)
        _check_broker(parts)
    except ConfigurationError as error:
        return str(error)
    return ""


def uses_redis(parts: ProcessParts) -> bool:
    """True if claims or messages of the app are in a Redis."""
    url = wiring.store_url(parts.context.settings, parts.context.broker_url)
    return url.startswith("redis") or transport_of(parts.celery) == "redis"


def _check_broker(parts: ProcessParts) -> None:
    broker, settings = parts.context.broker_url, parts.context.settings
    if transport_of(parts.celery) == "redis" and wiring.store_url(settings, broker) != broker:
        _eviction().check_broker(parts.celery.connection_for_write)


def check_analysis(settings: Settings, broker: str) -> None:
    """Refuse an analysis worker whose dead letters are in another process, or nowhere."""
    backend = letter_wiring.places(settings, broker)[0]
    if backend in ("channel", "none"):
        msg = (
            f"dlq.backend {backend!r} leaves no letters that another process could read:"
            " set it to amqp, kafka, sqs, sns_sqs or pubsub"
        )
        raise ConfigurationError(msg)


def check_foreign_routes(
    settings: Settings, tasks: AbstractSet[str], queues: AbstractSet[str]
) -> None:
    """Refuse a route of others' letters to a task or a queue that this app does not know."""
    for domain, types in settings.dlq.foreign_routes.items():
        for name, route in types.items():
            where = f"dlq.foreign_routes.{domain}.{name}"
            if route.task not in tasks:
                msg = f"{where} names the task {route.task!r}, which this app does not have"
                raise ConfigurationError(msg)
            if route.queue not in queues:
                msg = f"{where} names the queue {route.queue!r}, which this app does not know"
                raise ConfigurationError(msg)


@contextmanager
def _start() -> Iterator[None]:
    """Say of an unsafe setting that no worker starts with it; a running worker says it as it is."""
    try:
        yield
    except UnsafeSetting as error:
        msg = f"angzarr refuses to start, {error}"
        raise UnsafeSetting(msg) from error


def _eviction() -> Any:
    return importlib.import_module("angzarr.adapters.redis.server")


def check_compensations(handlers: Handlers) -> None:
    """Refuse a compensation that no worker could run, or that undoes itself."""
    for handler in handlers:
        name = handler.compensation
        if name is None:
            continue
        undoing = handlers.get(name)
        why = _useless(handler, undoing)
        if why:
            msg = f"the compensation of {handler.name}, {name!r}, {why}: name another handler"
            raise ConfigurationError(msg)


def _useless(handler: Handler, undoing: Handler | None) -> str:
    """The reason for which *undoing* cannot undo what *handler* did, or an empty string."""
    if undoing is None:
        return "is not registered with this app"
    if undoing is handler:
        return "is itself"
    if undoing.compensation == handler.name:
        return "names it in turn"
    # What is to be undone is one event, and its lane would wait for all that were before it.
    return "takes events in order" if undoing.order is not None else ""


def check_escalations(given: SagaCompensationSettings) -> None:
    """Refuse a webhook that cannot be posted to; raises MissingExtra, ConfigurationError."""
    if given.escalation_webhook_url is None:
        return
    open_poster(given).close()
    if not given.escalation_webhook_secrets:
        _log.warning(
            "escalations_unsigned: a receiver cannot tell escalations from forgeries;"
            " set %s.escalation_webhook_secrets",
            SECTION,
        )


def check_ordered_handlers(parts: ProcessParts) -> None:
    """Refuse ordered handlers without a database, or of events without a place."""
    orders = orders_of(parts.context.handlers)
    if orders:  # what it needs is imported here, and not by each child at its first event
        _ = parts.ordering
    fallback = parts.context.settings.saga_compensation.fallback_domain
    for name, order in orders.items():
        if fallback in order.domains:
            msg = (
                f"{name} takes the events of {fallback!r} in order, and failed compensations"
                " are events of that domain without an order: give"
                " saga_compensation.fallback_domain a domain of its own"
            )
            raise ConfigurationError(msg)
