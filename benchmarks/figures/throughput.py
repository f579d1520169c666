"""Throughput of a handler that does nothing, all guarantees on, against bare Celery."""

from __future__ import annotations

from functools import partial

from harness import servers
from harness.drain import drain
from harness.figure import Figure, Measured
from harness.guarantees import expect_all
from harness.pairs import Pair, alternate, medians, ratios
from harness.private_redis import private_redis
from harness.site import Load, Side

from figures.sides import EVENTS, PAIRS, PREFETCH_IN, STOCK, load, pool_of, prefetch_of


def measure_rabbitmq() -> Measured:
    """Drain quorum queues in turn, each run in a fresh queue of one virtual host."""

    def ours() -> float:
        with servers.redis_store() as store:
            return _ours(load(broker), store)

    with servers.virtual_host() as broker:
        pairs = alternate(ours, lambda: drain(STOCK, load(broker)).rate, pairs=PAIRS, discarded=1)
    detail = {
        "broker": f"RabbitMQ {servers.rabbitmq_version()}, quorum queues on both sides",
        "store": f"Redis {servers.redis_version()}",
    }
    return _measured(pairs, "prefork", detail)


def measure_redis(pool: str) -> Measured:
    """Drain in turn, each run on a fresh Redis, which is broker and store on our side."""

    def ours() -> float:
        with private_redis() as url:
            dead_letters = {"ANGZARR_DLQ__BACKEND": "amqp", "ANGZARR_DLQ__AMQP_URL": letters}
            return _ours(load(url, pool), servers.Store(url, "angzarr-bench"), dead_letters)

    def theirs() -> float:
        with private_redis() as url:
            return drain(STOCK, load(url, pool)).rate

    with servers.virtual_host() as letters:
        pairs = alternate(ours, theirs, pairs=PAIRS, discarded=1)
    detail = {
        "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
        "store": "the same Redis",
        "transport": "ours; bare Celery on kombu's",
        "dead_letters": "RabbitMQ (none were written)",
    }
    return _measured(pairs, pool, detail)


def _measured(pairs: list[Pair], pool: str, where: dict[str, str]) -> Measured:
    middle = medians(pairs)
    return Measured(
        values=ratios(pairs),
        detail={
            "events_per_second_angzarr": round(middle.ours),
            "events_per_second_celery": round(middle.theirs),
            "events_a_run": EVENTS,
            **where,
            "pool": pool_of(pool),
            "prefetch_multiplier": prefetch_of(PREFETCH_IN[pool]),
        },
    )


def _ours(work: Load, store: servers.Store, more: dict[str, str] | None = None) -> float:
    place = {"ANGZARR_STORE": store.url, "ANGZARR_PREFIX": store.prefix, **(more or {})}
    drained = drain(Side(app="workers.noop_angzarr", environment=place), work)
    expect_all(store, drained.log, EVENTS)
    return drained.rate


_HOW = (
    "The queue is filled first; then one worker with {pool} drains it. The rate is that of the"
    " handlers' starts, stamped where they run, over the middle 98 %. All guarantees: claim, owner"
    " lease, start count, breaker, typed decode, fact, confirmed copies; telemetry off. A run"
    " counts only if every event ran, has a completed record, and its fact is in the log."
)

FIGURES = (
    Figure(
        key="noop_vs_celery",
        title="no-op throughput on Redis, all guarantees",
        unit="ratio",
        aim="≥ 2",
        against="a bare Celery task with late ack on kombu's transport, prefork 2, same prefetch",
        how=_HOW.format(pool="two prefork children"),
        measure=partial(measure_redis, "prefork"),
    ),
    Figure(
        key="threads_vs_celery",
        title="the same in threads",
        unit="ratio",
        aim="≥ 4",
        against="a bare Celery task with late ack on kombu's transport, threads 2, same prefetch",
        how=_HOW.format(pool="two threads"),
        measure=partial(measure_redis, "threads"),
    ),
    Figure(
        key="noop_vs_celery_rabbitmq",
        title="no-op throughput on RabbitMQ, all guarantees",
        unit="ratio",
        aim="≥ 0.90",
        against="a bare Celery task with late ack, prefork 2, same queue type, prefetch and body",
        how=_HOW.format(pool="two prefork children"),
        measure=measure_rabbitmq,
    ),
)
