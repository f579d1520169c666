"""How long a worker under load takes to end after SIGTERM."""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from typing import Any

from harness import servers
from harness.farewells import Farewells, farewells
from harness.figure import Figure, Measured
from harness.private_redis import private_redis
from harness.site import PROCESSES, Side

from figures.sides import PREFETCH, load, pool_of, prefetch_of

#: Fewer for a quick look while working on the code; the report tells how many there were.
STOPS = int(os.environ.get("BENCH_STOPS", "20"))
MESSAGES_A_STOP = 600
SEED = 20_263

STOCK = Side(app="workers.journal_celery", environment={})


def measure(pool: str = "prefork") -> Measured:
    """Stop as many angzarr workers of *pool* as bare Celery's of prefork, with the same seed."""
    with servers.virtual_host() as letters:
        ours = _stop(
            Side(
                app="workers.journal_angzarr",
                environment={"ANGZARR_DLQ__BACKEND": "amqp", "ANGZARR_DLQ__AMQP_URL": letters},
            ),
            pool,
        )
    theirs = _stop(STOCK, "prefork")
    return Measured(
        values=ours.seconds,
        detail={
            **_told("angzarr", ours),
            **_told("celery", theirs),
            "s_celery_over_10": f"{sum(one > 10 for one in theirs.seconds)} of {STOPS}",
            "stops_each": STOPS,
            "messages_each": ours.toll.messages,
            "seed": SEED,
            "broker": f"Redis {servers.redis_version()}, a fresh server for each side",
            "pool": pool_of(pool),
            "pool_celery": pool_of("prefork"),
            "prefetch_multiplier": prefetch_of(),
        },
    )


def _stop(side: Side, pool: str) -> Farewells:
    with private_redis() as url:
        work = load(url, pool, events=STOPS * MESSAGES_A_STOP, prefetch=PREFETCH)
        return farewells(side, work, stops=STOPS, seed=SEED)


def _told(name: str, found: Farewells) -> dict[str, Any]:
    return {
        f"slowest_s_{name}": round(max(found.seconds), 2),
        f"median_s_{name}": round(median(found.seconds), 2),
        f"lost_{name}": found.toll.lost,
        f"ran_again_{name}": found.toll.ran_again,
    }


HOW = (
    "The queue is filled; one worker after the other is started and asked to stop with SIGTERM in"
    " the midst of its work, after a number of starts that is drawn by a seed. The time ends when"
    " its process has ended. The last worker does the rest. Every start is written to a file: what"
    " ran again had been completed, or was given back although it had begun; what is lost never"
    " started, or waits for kombu's time-out. The slowest stop counts."
)


def _figure(key: str, title: str, pool: str, how: str) -> Figure:
    return Figure(
        key=key,
        title=title,
        unit="s",
        aim="≤ 10 s",
        worst=True,
        against="bare Celery with late ack on kombu's transport, `visibility_timeout` an hour",
        how=how,
        measure=partial(measure, pool),
    )


FIGURES = (
    _figure("shutdown_s", "from SIGTERM under load to the end of the worker", "prefork", HOW),
    _figure(
        "shutdown_processes_s",
        "from SIGTERM under load to the end of `angzarr worker`",
        PROCESSES,
        f"{HOW} The signal goes to the supervisor alone, whose end is that of all its processes.",
    ),
)
