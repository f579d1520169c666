"""What a publish costs the process that publishes, and how long many take, beside bare Celery."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import NamedTuple

from harness import servers
from harness.figure import Figure, Measured
from harness.pairs import Pair, medians, ratios
from harness.private_redis import private_redis
from harness.site import Side, site
from workers.stamps import Stamps

from figures.sides import EVENTS, PAIRS, load

Broker = Callable[[], AbstractContextManager[str]]

ROUNDS = 41
#: Of one round: long enough to be timed, and shorter than a machine's moods.
FEW = 200
#: The store is asked for nothing, and need not be there.
OURS = Side(app="workers.noop_angzarr", environment={})
BROKERS: Mapping[str, Broker] = {"redis": private_redis, "rabbitmq": servers.virtual_host}


class Cost(NamedTuple):
    """Of one event in each round: processor time and time (µs), and what took it."""

    cpu: list[Pair]
    wall: list[Pair]
    broker: str


def cost(how: str, broker: Broker, rounds: int, events: int) -> Cost:
    """Let both sides take turns in one process."""
    with broker() as url, site(OURS, load(url)) as at:
        Stamps.create(at.folder / "stamps", 1)
        told = json.loads(at.run("workers.publish_cost", how, str(rounds), str(events)))
        cpu = [Pair(ours[0], theirs[0]) for ours, theirs in told]
        wall = [Pair(ours[1], theirs[1]) for ours, theirs in told]
        return Cost(cpu, wall, _version(url))


def measure_one(broker: Broker) -> Measured:
    """The ratio of processor time."""
    found = cost("one", broker, ROUNDS, FEW)
    return Measured(
        values=ratios(found.cpu),
        detail={
            "us_cpu_ours": round(medians(found.cpu).ours),
            "us_cpu_celery": round(medians(found.cpu).theirs),
            "us_ours": round(medians(found.wall).ours),
            "us_celery": round(medians(found.wall).theirs),
            "events_a_round": FEW,
            "broker": found.broker,
        },
    )


def measure_many() -> Measured:
    """How many times as fast, on the broker where that is less."""
    found = {kind: cost("many", of, PAIRS, EVENTS) for kind, of in BROKERS.items()}
    faster = {kind: ratios([pair.swapped() for pair in of.wall]) for kind, of in found.items()}
    detail = {
        kind: {
            "times_as_fast": round(median(faster[kind]), 2),
            "us_ours": round(medians(of.wall).ours),
            "us_celery": round(medians(of.wall).theirs),
            "ratio_of_cpu": round(median(ratios(of.cpu)), 3),
            "broker": of.broker,
        }
        for kind, of in found.items()
    }
    values = [min(both) for both in zip(*faster.values(), strict=True)]
    return Measured(values=values, detail={"events_a_round": EVENTS, **detail})


def _version(url: str) -> str:
    if url.startswith("amqp"):
        return f"RabbitMQ {servers.rabbitmq_version()}, a quorum queue, each confirmed"
    return f"Redis {servers.redis_version()}, a fresh server"


_COUNTS = " A run counts only if every message is in its queue. No publish asks the claim store."
_ONE = (
    "`app.publish` of a pydantic model with all headers, against `apply_async` of a plain task."
    " Both apps live in one process and take turns, 200 events each, 41 times; the ratio is that of"
    " the processor time of an event, the time beside it includes the wait for the broker."
    + _COUNTS
)
_BARE = "`apply_async` of bare Celery in the same process, on kombu's transport"

FIGURES = (
    *(
        Figure(
            key=key, title=title, unit="ratio", aim="≤ 1.2", against=_BARE, how=_ONE,
            measure=partial(measure_one, BROKERS[kind]),
        )
        for key, title, kind in (
            ("publish_vs_celery", "cost of a publish on Redis", "redis"),
            ("publish_vs_celery_rabbitmq", "cost of a publish on RabbitMQ", "rabbitmq"),
        )
    ),
    Figure(
        key="publish_many",
        title="10,000 events by one `publish_many`, how many times as fast as one by one",
        unit="ratio",
        aim="≥ 6",
        against=f"a loop of {_BARE}",
        how=(
            "One `app.publish_many` of pydantic models with all headers, against `apply_async` of a"
            " plain task for each event. Both apps live in one process and take turns, on Redis and"
            " on RabbitMQ, where both wait for the broker's confirms. A value is Celery's time"
            " divided by ours, on the broker where that is less." + _COUNTS
        ),
        measure=measure_many,
    ),
)  # fmt: skip
