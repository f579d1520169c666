"""How soon a worker goes on after a server was away, and what the wait costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from harness import servers
from harness.blackout import Cost, blackout
from harness.cable import Cable, cable
from harness.figure import Figure, Measured
from harness.private_redis import private_redis
from harness.site import Side

from figures.sides import load, pool_of, prefetch_of

#: Shorter for a quick look while working on the code; the report tells how long it was.
SECONDS = float(os.environ.get("BENCH_OUTAGE", "30"))
#: Published each second (see workers.outage_angzarr), before, during and after the outage.
RATE = 10
AROUND = 12


class Fault(NamedTuple):
    """What is away and how: *cut* ends connections, *stall* leaves them open and mute."""

    broker: str
    away: str
    how: str = "cut"
    store: str = "Redis"


#: A store of "broker" is the Redis that is the broker too.
FAULTS = (
    Fault("Redis", "broker", store="broker"),
    Fault("Redis", "broker", "stall", store="broker"),
    Fault("Redis", "store"),
    Fault("RabbitMQ", "broker"),
    Fault("RabbitMQ", "broker", "stall"),
    Fault("RabbitMQ", "store"),
    Fault("RabbitMQ", "store", "stall"),
    Fault("RabbitMQ", "store", store="PostgreSQL"),
    Fault("RabbitMQ", "letters"),
    Fault("RabbitMQ", "facts"),
    Fault("RabbitMQ", "broker+store"),
    Fault("RabbitMQ", "store+letters"),
    Fault("Redis", "broker+letters", store="broker"),
)


def measure() -> Measured:
    """Take each away in turn, from a worker of its own."""
    costs = {fault: _cost(fault) for fault in FAULTS}
    return Measured(
        values=[cost.recovered for cost in costs.values()],
        detail={
            **{_name(fault): _told(cost) for fault, cost in costs.items()},
            "events_lost": sum(cost.lost for cost in costs.values()),
            "events": len(FAULTS) * _events(),
            "load": f"{RATE} events a second",
            "broker": f"Redis {servers.redis_version()}; RabbitMQ {servers.rabbitmq_version()}",
            "letters": "RabbitMQ, over a cable of their own; facts in PostgreSQL, the same",
            "pool": pool_of("prefork"),
            "prefetch_multiplier": prefetch_of(1),
        },
    )


def _cost(fault: Fault) -> Cost:
    with _servers(fault) as (broker, environment, cables):
        away = [cables[name] for name in fault.away.split("+")]
        work = load(broker, events=_events(), prefetch=1)
        side = Side(app="workers.outage_angzarr", environment=environment)

        def fail() -> None:
            for one in away:
                getattr(one, fault.how)()

        def mend() -> None:
            for one in away:
                one.mend()

        return blackout(side, work, fail, mend, SECONDS)


@contextmanager
def _servers(fault: Fault) -> Iterator[tuple[str, dict[str, str], dict[str, Cable]]]:
    """Lend fresh servers: the broker's own address, what leads through cables, and the cables."""
    with ExitStack() as stack:
        redis = stack.enter_context(private_redis())
        amqp = stack.enter_context(servers.virtual_host())
        sql = stack.enter_context(servers.database())
        broker = {"Redis": redis, "RabbitMQ": amqp}[fault.broker]
        store = {"Redis": redis, "PostgreSQL": sql, "broker": broker}[fault.store]
        cables, through = {}, {}
        for name, url in {"broker": broker, "store": store, "letters": amqp, "facts": sql}.items():
            cables[name], through[name] = stack.enter_context(cable(url))
        if fault.store == "broker":
            through["store"] = through["broker"]
        yield broker, _environment(through), cables


def _environment(through: dict[str, str]) -> dict[str, str]:
    return {
        "BENCH_BROKER": through["broker"],
        "ANGZARR_STORE": through["store"],
        "ANGZARR_DLQ__BACKEND": "amqp",
        "ANGZARR_DLQ__AMQP_URL": through["letters"],
        "ANGZARR_FACTS__URL": through["facts"],
    }


def _events() -> int:
    return round(RATE * (SECONDS + AROUND))


def _name(fault: Fault) -> str:
    kind = "" if fault.store in {"Redis", "broker"} else f" on {fault.store}"
    one = ", which is the store" if fault.store == "broker" else ""
    return f"{fault.broker}{one}: {fault.away}{kind} {fault.how}"


def _told(cost: Cost) -> str:
    meanwhile = f", {cost.handled_meanwhile} handled meanwhile" if cost.handled_meanwhile else ""
    return (
        f"away {cost.away:.1f} s, back after {cost.recovered:.2f} s,"
        f" {cost.our_lines} lines of ours and {cost.others_lines} of Celery's,"
        f" {cost.cpu:.2f} CPU s{meanwhile}, lost {cost.lost}, repeated {cost.repeated}"
    )


FIGURES = (
    Figure(
        key="outage_recovery_s",
        title="from a server's return to the next handled event",
        unit="s",
        aim="≤ 10 s",
        worst=True,
        against="nothing: what is counted beside it is what waiting costs",
        how=(
            "Ten events a second are published; some are retried, some become letters. Between the"
            " worker and each server is a proxy. Once 20 events are handled it is cut, or lets"
            " nothing through, for half a minute. The time runs from its return to the next event"
            " that a handler ends; the slowest outage counts. Lines are those of warnings and"
            " errors from the cut on that are not about one event; CPU seconds are those of the"
            " worker's processes while it is away, less what a child had used that ended meanwhile,"
            " as those do whose broker is cut (so a sum may be below zero). At the end every event"
            " must be handled, or a letter if it was given up."
        ),
        measure=measure,
    ),
)
