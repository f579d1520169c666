"""Wiring: from settings to adapters. Imports a technology only where it is configured."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from types import ModuleType
from typing import Any, Final, NamedTuple

from celery import signals

from angzarr.configuration.pins import PinStore
from angzarr.delivery.compensation import StepLog
from angzarr.delivery.invoke import Hook
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.events.event import Event
from angzarr.facts.outbox import FactOutbox
from angzarr.fleet import Fleet
from angzarr.payloads.holders import PayloadHolders
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import Complete, IdempotencyStore, OwnerLeases
from angzarr.runtime.processes import OncePerProcess
from angzarr.settings.settings import Settings
from angzarr.wiring.telemetry import METRICS

#: Which extra brings which importable package.
_EXTRAS = {
    "redis": "redis",
    "psycopg": "postgresql",
    "confluent_kafka": "kafka",
    "boto3": "sqs",
    "httpx": "webhooks",
    "joserfc": "encryption",
    "cryptography": "encryption",
    "jsonschema": "schemas",
    "google.cloud.pubsub": "pubsub",
    "opentelemetry.sdk": "opentelemetry",
}

#: The embedded database of a memory broker.
EMBEDDED = "sqlite:///angzarr.db"

#: The registers of bodies, by where claims are.
SQL_HOLDERS: Final = "angzarr.adapters.sql.delivery.payload_holders"
MEMORY_HOLDERS: Final = "angzarr.adapters.memory.payload_holders"

#: Expired records that one sweep deletes at most, so that it holds no lock for long.
_SWEPT = 5_000


class Claims(NamedTuple):
    """Where claims live, the leases that keep them, and who has such a lease."""

    store: IdempotencyStore
    leases: OwnerLeases
    fleet: Fleet
    #: Logs of the steps that handlers have finished.
    steps: StepLog
    #: Which versions of configurations events are pinned to.
    pins: PinStore
    #: Facts that endings of claims keep, until a relay moves them.
    outbox: FactOutbox
    #: Who holds bodies in payload stores; endings of claims release them.
    holders: PayloadHolders
    #: False where the claims are in a cluster, whose scripts cannot keep facts with a claim.
    keeps_facts: Callable[[], bool] = lambda: True
    #: Deletes some expired records, where the store does not do it by itself.
    sweep: Callable[[], object] | None = None
    #: Makes what our Redis transport takes to end a claim with an acknowledgement; None: cannot.
    make_ending: Callable[..., object] | None = None
    #: Asks for the store's time; None: its clock is this machine's.
    time: Callable[[], datetime] | None = None


@contextmanager
def extra(package: str, brought_by: str = "") -> Iterator[None]:
    """Turn a missing *package* into MissingExtra, which says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package.split(".", maxsplit=1)[0]:
            raise
        raise MissingExtra(package, brought_by or _EXTRAS[package]) from error


def adapter(name: str, package: str, brought_by: str = "") -> ModuleType:
    """The adapter module *name*, dotted; raises MissingExtra where its *package* is not there."""
    with extra(package, brought_by):
        return importlib.import_module(name)


def redis_adapter(name: str) -> ModuleType:
    """The module *name* of the Redis adapter; raises MissingExtra without its client."""
    return adapter(name, "redis")


def store_url(settings: Settings, broker: str) -> str:
    """The URL of the claims: as configured, or the default of the broker."""
    if settings.store:
        return settings.store
    scheme = broker.split(":", 1)[0]
    if scheme == "memory":
        return EMBEDDED
    if scheme in ("redis", "rediss"):
        return broker
    msg = (
        f"a {scheme} broker keeps no claims: set store to a Redis or PostgreSQL that all workers"
        " share, e.g. store: redis://localhost:6379/1 or ANGZARR_STORE"
    )
    raise ConfigurationError(msg)


def open_claims(settings: Settings, broker: str) -> Claims:
    """The claim store with a small cache of completed keys before it, and its leases."""
    url = store_url(settings, broker)
    rides = _rides(settings, url, broker)
    claims = _open_store(url, settings.prefix, one=rides, most=settings.facts.most_waiting)
    if url.startswith("sqlite") and not broker.startswith(("memory", "filesystem")):
        msg = (
            "SQLite keeps claims for one host only, a broker serves many:"
            " set store to redis://… or postgresql+psycopg://…"
        )
        raise ConfigurationError(msg)
    if not rides:
        claims = claims._replace(make_ending=None)
    return claims._replace(store=CompletedCache(claims.store))


def _rides(settings: Settings, store: str, broker: str) -> bool:
    """True if a claim in *store* can end in the step that acknowledges a message."""
    return settings.redis_transport == "angzarr" and store == broker and ";" not in broker


def _open_store(url: str, prefix: str, *, one: bool, most: int) -> Claims:
    scheme = url.split(":", 1)[0]
    if scheme in ("redis", "rediss"):
        claims = adapter("angzarr.adapters.redis.idempotency", "redis")
        client = adapter("angzarr.adapters.redis.link", "redis").RedisClient(url)
        outbox = adapter("angzarr.adapters.redis.fact_outbox", "redis").RedisFactOutbox(
            client, prefix=prefix, most=most
        )
        store = claims.RedisIdempotencyStore(client, prefix=prefix, one=one, outbox=outbox)
        leases = claims.RedisOwnerLeases(client, prefix=prefix)
        fleet = adapter("angzarr.adapters.redis.fleet", "redis").RedisFleet(client, prefix=prefix)
        steps = adapter("angzarr.adapters.redis.idempotency", "redis").RedisStepLog(
            client, prefix=prefix
        )
        return Claims(
            store,
            leases,
            fleet,
            steps,
            redis_adapter("angzarr.adapters.redis.configuration").RedisPinStore(
                client, prefix=prefix
            ),
            outbox,
            store.holders,
            outbox.is_open,
            make_ending=partial(
                _redis_ending, store, adapter("angzarr.adapters.redis.step", "redis").Ending
            ),
            time=client.time,
        )
    if scheme.startswith(("sqlite", "postgresql")):
        claims = importlib.import_module("angzarr.adapters.sql.delivery.idempotency")
        engine = sql_engine(url, power_safe=False)
        outbox = importlib.import_module("angzarr.adapters.sql.delivery.fact_outbox").SqlFactOutbox(
            engine, most=most
        )
        store = claims.SqlIdempotencyStore(engine, outbox=outbox)
        owners = claims.SqlOwnerLeases(engine)
        fleet = importlib.import_module("angzarr.adapters.sql.delivery.fleet").SqlFleet(engine)
        # A claim that a power cut forgets is made again, a finished step is not undone.
        safe = sql_engine(url) if scheme.startswith("sqlite") else engine
        steps = importlib.import_module("angzarr.adapters.sql.delivery.steps").SqlStepLog(safe)
        pins = importlib.import_module("angzarr.adapters.sql.delivery.pins").SqlPinStore(engine)
        swept = (store, owners, steps, pins)
        shared = scheme.startswith("postgresql")
        return Claims(
            store,
            owners,
            fleet,
            steps,
            pins,
            outbox,
            importlib.import_module(SQL_HOLDERS).SqlPayloadHolders(engine),
            sweep=lambda: [one.sweep(_SWEPT) for one in swept],
            time=partial(_sql_time, engine) if shared else None,
        )
    if scheme == "memory":
        claims = importlib.import_module("angzarr.adapters.memory.idempotency")
        leases = claims.MemoryOwnerLeases()
        fleet = importlib.import_module("angzarr.adapters.memory.idempotency").MemoryFleet(leases)
        holders = importlib.import_module(MEMORY_HOLDERS).SHARED
        store = claims.MemoryIdempotencyStore(leases, holders=holders)
        steps = importlib.import_module("angzarr.adapters.memory.idempotency").MemoryStepLog(store)
        pins = importlib.import_module("angzarr.adapters.memory.configuration").MemoryPinStore()
        return Claims(store, leases, fleet, steps, pins, store.outbox, store.holders)
    msg = f"store {scheme}:… is unknown: use redis://, postgresql+psycopg:// or sqlite:///"
    raise ConfigurationError(msg)


def _sql_time(engine: Any) -> datetime:
    there: datetime = importlib.import_module("angzarr.adapters.sql.engine.statements").ask_time(
        engine
    )
    return there


def redis_schedule(url: str, prefix: str) -> Any:
    """A schedule on Redis; raises MissingExtra where its client is not installed."""
    client = adapter("angzarr.adapters.redis.link", "redis").RedisClient(url)
    return adapter("angzarr.adapters.redis.schedule", "redis").RedisSchedule(client, prefix=prefix)


def _redis_ending(  # noqa: PLR0917 - partly bound where the store is opened
    store: Any,
    make: Callable[..., object],
    key: str,
    token: str,
    completion: Complete,
    facts: Sequence[str],
    on_fenced: Callable[[], None],
) -> object:
    record, args = store.ending_args(key, token, completion, facts)
    return make(record, args, on_fenced)


def sql_engine(url: str, *, power_safe: bool = True) -> Any:
    """An engine for *url*; raises MissingExtra where its driver is not installed."""
    sql = importlib.import_module("angzarr.adapters.sql.engine.engine")
    with extra("psycopg"):
        return sql.build_engine(url, power_safe=power_safe)


def facts_url(settings: Settings, broker: str) -> str | None:
    """The URL of the table of facts; None: there is none."""
    return settings.facts.url or (EMBEDDED if is_embedded(broker) else None)


def is_amqp(broker: str) -> bool:
    """True if *broker* is a RabbitMQ."""
    return broker.startswith(("amqp", "pyamqp"))


def is_embedded(broker: str) -> bool:
    """True if *broker* is a part of its process, so that nothing is shared."""
    return broker.startswith("memory")


def check_shared(url: str, broker: str, what: str, key: str) -> None:
    """Refuse a *url* for *what* that not all would share whom *broker* serves; *key* says it.

    Raises ConfigurationError.
    """
    embedded = is_embedded(broker)
    one_host = embedded or broker.startswith("filesystem")
    if (url.startswith("memory") and not embedded) or (url.startswith("sqlite") and not one_host):
        kind = url.split(":", 1)[0]
        msg = (
            f"{kind} keeps {what} for one host or process only, a broker serves many:"
            f" set {key} to postgresql+psycopg://…"
        )
        raise ConfigurationError(msg)


def open_hooks(transport: str) -> list[Hook]:
    """The hooks that every app has: the log lines, and OpenTelemetry's API."""
    log = importlib.import_module("angzarr.adapters.structlog.hook")
    telemetry = importlib.import_module("angzarr.adapters.opentelemetry.traces")
    measures = METRICS.provider()
    return [log.LogHook(), telemetry.OpenTelemetryHook(broker=transport, meter_provider=measures)]


def begin_counts() -> None:
    """Let the counts of deliveries begin at 0, also in a parent whose children deliver."""
    telemetry = importlib.import_module("angzarr.adapters.opentelemetry.traces")
    telemetry.OpenTelemetryHook(meter_provider=METRICS.provider())


def _meters(module: str, name: str) -> Any:
    """The instruments *name* of *module*, on this process's meter provider."""
    adapter = importlib.import_module(module)
    return getattr(adapter, name)(METRICS.provider())


_LETTERS: Final = OncePerProcess(
    partial(_meters, "angzarr.adapters.opentelemetry.letter_meters", "LetterMeters")
)
_DEPTHS: Final = OncePerProcess(
    partial(_meters, "angzarr.adapters.opentelemetry.letter_meters", "DepthMeters")
)
_SAGAS: Final = OncePerProcess(
    partial(_meters, "angzarr.adapters.opentelemetry.meters", "SagaMeters")
)
_ORDERING: Final = OncePerProcess(
    partial(_meters, "angzarr.adapters.opentelemetry.meters", "OrderingMeters")
)


def breaker_meters() -> Any:
    """The OpenTelemetry instruments of breakers."""
    return _meters("angzarr.adapters.opentelemetry.meters", "BreakerMeters")


def clock_meters() -> Any:
    """The OpenTelemetry instruments for the error of this machine's clock."""
    return _meters("angzarr.adapters.opentelemetry.meters", "ClockMeters")


def show_loop(watch: Any) -> None:
    """Let metrics tell what the *watch* over an event loop knows; None: there is none."""
    if watch is not None:
        _meters("angzarr.adapters.opentelemetry.meters", "LoopMeters").observe(watch)


def alert_meters() -> Any:
    """The OpenTelemetry instruments of alerts."""
    return _meters("angzarr.adapters.opentelemetry.letter_meters", "AlertMeters")


def depth_meters() -> Any:
    """The OpenTelemetry instruments for how full this process finds the dead-letter queues."""
    return _DEPTHS.get()


def letter_meters() -> Any:
    """The counters for where this process's letters go."""
    return _LETTERS.get()


def saga_meters() -> Any:
    """The counters of this process's rejections and compensations."""
    return _SAGAS.get()


def ordering_meters() -> Any:
    """The OpenTelemetry instruments of this process's ordered handlers."""
    return _ORDERING.get()


def publishing_span(event: Event) -> AbstractContextManager[str | None]:
    """A span around the publish of *event*, which gives its ``traceparent``."""
    traces = importlib.import_module("angzarr.adapters.opentelemetry.traces")
    span: AbstractContextManager[str | None] = traces.publishing(event.type, event.domain, event.id)
    return span


def bound_logger() -> Callable[[Mapping[str, Any]], Any]:
    """The function that makes a handler's logger."""
    logs = importlib.import_module("angzarr.adapters.structlog.logs")
    make: Callable[[Mapping[str, Any]], Any] = logs.bound_logger
    return make


def write_error(logger: str, event: str, fields: Mapping[str, Any]) -> None:
    """Write one ERROR line *event* of *logger*, with *fields*."""
    logs = importlib.import_module("angzarr.adapters.structlog.logs")
    logs.bound_logger(fields, logger).error(event)


def write_logs(level: int) -> None:
    """Set up logging for a process other than a Celery worker; our own lines from *level*."""
    importlib.import_module("angzarr.adapters.structlog.logs").configure(level)
    guard_logs()


def guard_handlers() -> Any:
    """Guard all handlers that logging knows in this process; return the count of lost lines."""
    loss = importlib.import_module("angzarr.adapters.structlog.log_loss").LOG_LOSS
    loss.guard()
    return loss


def guard_logs() -> Callable[[], str]:
    """Let no log that cannot be written cost time; return what tells what stands against it.

    Meant for a parent: its children share the count, and it shows the metric of all.
    """
    loss = guard_handlers()
    shows = importlib.import_module("angzarr.adapters.opentelemetry.letter_meters")
    shows.show_lost_lines(lambda: loss.lines, METRICS.provider())
    says: Callable[[], str] = loss.says
    return says


def dress_celery_logs() -> None:
    """Let Celery's log lines look like ours, where Celery sets up logging itself."""
    for signal in (signals.after_setup_logger, signals.after_setup_task_logger):
        signal.connect(_dress, weak=False, dispatch_uid="angzarr")


def _dress(logger: logging.Logger, format: str, **_signal: Any) -> None:
    importlib.import_module("angzarr.adapters.structlog.logs").dress_celerys(logger, format)
    guard_handlers()  # a child of a prefork pool makes handlers of its own
