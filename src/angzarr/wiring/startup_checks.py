"""Checks: what is refused at start because a server is not configured, not shared or not fit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable, UnsafeSetting
from angzarr.settings.settings import Settings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring


def check_servers(app: Any) -> None:
    """Refuse servers that *app*'s settings cannot make one of, or that would lose messages.

    Connects to none but Redis; one that is away is not asked.
    """
    settings, broker = app.settings, app.broker_url
    check_configured(settings, broker)
    _check_spool(settings)
    check_store(settings, broker)
    with _start():
        _check_broker(app)


def check_configured(settings: Settings, broker: str) -> None:
    """Refuse servers that settings cannot make one of, or that would lose messages; asks none."""
    wiring.open_claims(settings, broker)
    letter_wiring.open_letterbox(settings, broker).close()
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


def store_trouble(app: Any) -> str:
    """Return why *app*'s Redis would be refused if this worker started now; empty: it would not."""
    _eviction().forget_asked()
    try:
        _check_store(app.settings, app.broker_url)
        _check_broker(app)
    except ConfigurationError as error:
        return str(error)
    return ""


def uses_redis(app: Any) -> bool:
    """Return True if claims or messages of *app* are in a Redis."""
    url = wiring.store_url(app.settings, app.broker_url)
    return url.startswith("redis") or transport_of(app) == "redis"


def _check_broker(app: Any) -> None:
    broker = app.broker_url
    if transport_of(app) == "redis" and wiring.store_url(app.settings, broker) != broker:
        _eviction().check_broker(app.connection_for_write)


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
    """Say of what is unsafe that no worker starts with it; one that runs says it as it is."""
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
    """Return why *undoing* cannot undo what *handler* did, or an empty string."""
    if undoing is None:
        return "is not registered with this app"
    if undoing is handler:
        return "is itself"
    if undoing.compensation == handler.name:
        return "names it in turn"
    # What is to be undone is one event, and its lane would wait for all that were before it.
    return "takes events in order" if undoing.order is not None else ""
