"""What a publish costs the process that publishes, against bare Celery beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from harness import servers
from harness.figure import Figure, Measured
from harness.pairs import Pair, medians, ratios
from harness.private_redis import private_redis
from harness.site import Side, site
from workers.stamps import Stamps

from figures.sides import load

ROUNDS = 41
#: Of one round: long enough to be timed, and shorter than a machine's moods.
EVENTS = 200
#: The store is asked for nothing, and need not be there.
OURS = Side(app="workers.noop_angzarr", environment={})


def measure(how: str, broker: Callable[[], AbstractContextManager[str]]) -> Measured:
    """Let both sides take turns in one process; the ratio is that of processor time."""
    with broker() as url, site(OURS, load(url)) as at:
        Stamps.create(at.folder / "stamps", 1)
        told = json.loads(at.run("workers.publish_cost", how, str(ROUNDS), str(EVENTS)))
    cpu = [Pair(ours[0], theirs[0]) for ours, theirs in told]
    wall = [Pair(ours[1], theirs[1]) for ours, theirs in told]
    return Measured(
        values=ratios(cpu),
        detail={
            "us_cpu_ours": round(medians(cpu).ours),
            "us_cpu_celery": round(medians(cpu).theirs),
            "us_ours": round(medians(wall).ours),
            "us_celery": round(medians(wall).theirs),
            "events_a_round": EVENTS,
            "broker": _version(url),
        },
    )


def _version(url: str) -> str:
    if url.startswith("amqp"):
        return f"RabbitMQ {servers.rabbitmq_version()}, a quorum queue, each confirmed"
    return f"Redis {servers.redis_version()}, a fresh server"


_HOW = (
    " Both apps live in one process and take turns, 200 events each, 41 times; the ratio is that of"
    " the processor time of an event, the time beside it includes the wait for the broker. A run"
    " counts only if every message is in its queue. No publish asks the claim store."
)
_ONE = "`app.publish` of a pydantic model with all headers, against `apply_async` of a plain task."
_MANY = "One `app.publish_many` for all events of a round, against `apply_async` for each."
_BARE = "`apply_async` of bare Celery in the same process, on kombu's transport"

FIGURES = tuple(
    Figure(
        key=key, title=title, unit="ratio", aim=aim, against=_BARE, how=how + _HOW,
        measure=partial(measure, what, broker),
    )
    for key, title, aim, how, what, broker in (
        ("publish_vs_celery", "cost of a publish on Redis", "≤ 1.2", _ONE, "one", private_redis),
        (
            "publish_vs_celery_rabbitmq", "cost of a publish on RabbitMQ", "≤ 1.2", _ONE, "one",
            servers.virtual_host,
        ),
        (
            "publish_many_vs_celery", "cost of an event among many on Redis", "≤ 0.5", _MANY,
            "many", private_redis,
        ),
        (
            "publish_many_vs_celery_rabbitmq", "cost of an event among many on RabbitMQ", "≤ 0.5",
            _MANY, "many", servers.virtual_host,
        ),
    )
)  # fmt: skip
