"""How long a killed worker's message waits for another worker."""

from __future__ import annotations

import json
import os
from functools import partial
from statistics import median
from typing import Any

from harness import servers
from harness.figure import Figure, Measured
from harness.private_redis import private_redis
from harness.relay import NeverBack, relay
from harness.site import PROCESSES, Side

from figures.sides import load, pool_of, prefetch_of

#: Fewer for a quick look while working on the code; the report tells how many there were.
KILLS = min(20, int(os.environ.get("BENCH_KILLS", "20")))
#: kombu at its defaults needs 100 s for one.
STOCK_KILLS = 1
SEED = 20_262
#: How long the handler runs that is killed, and how long we wait for the next start (s).
HOLD = "300"
PATIENCE = 150.0

#: kombu counts a message as abandoned after 5 s (an hour by default), and looks as by default.
VISIBLE = {"visibility_timeout": 5}
#: The same, but it looks for abandoned messages every second.
EAGER = {**VISIBLE, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def measure(pool: str = "prefork") -> Measured:
    """Kill an angzarr worker KILLS times; beside it bare Celery, seldom, since it takes long."""
    with servers.virtual_host() as letters:
        took = _ours(letters, pool)
    return Measured(
        values=took,
        detail={
            "median_s_angzarr": round(median(took), 2),
            "kills_angzarr": KILLS,
            "s_celery": _stock(VISIBLE),
            "kills_celery": STOCK_KILLS,
            "celery_options": f"{json.dumps(VISIBLE)}, so no task may take longer than 5 s",
            "s_celery_looking_every_second": _stock(EAGER),
            "seed": SEED,
            "broker": f"Redis {servers.redis_version()}, also the store",
            "pool": f"{pool_of(pool)}, two workers",
            "prefetch_multiplier": prefetch_of(1),
        },
    )


def _ours(letters: str, pool: str) -> list[float]:
    with private_redis() as url:
        side = Side(
            app="workers.journal_angzarr",
            environment={
                "BENCH_HOLD": HOLD,
                "ANGZARR_DLQ__BACKEND": "amqp",
                "ANGZARR_DLQ__AMQP_URL": letters,
            },
        )
        work = load(url, pool, events=KILLS, prefetch=1)
        return relay(side, work, kills=KILLS, seed=SEED, patience=PATIENCE)


def _stock(options: dict[str, int]) -> Any:
    """Return seconds, the slowest of STOCK_KILLS kills, or how long we waited in vain."""
    environment = {"BENCH_HOLD": HOLD, "BENCH_TRANSPORT_OPTIONS": json.dumps(options)}
    side = Side(app="workers.journal_celery", environment=environment)
    with private_redis() as url:
        work = load(url, events=STOCK_KILLS, prefetch=1)
        try:
            took = relay(side, work, kills=STOCK_KILLS, seed=SEED, patience=PATIENCE)
        except NeverBack:
            return f"more than {PATIENCE:g}"
    return round(max(took), 1)


HOW = (
    "Two angzarr workers, claims on, broker and store on one Redis. A message is published and one"
    " of them starts its handler, which does not return; up to 2 s later (drawn by a seed)"
    " {what} killed with SIGKILL. The time ends when the other, idle until then, starts the handler"
    " of the same message. The killed worker is replaced before the next kill. The slowest kill"
    " counts."
)


def _figure(key: str, title: str, pool: str, what: str) -> Figure:
    return Figure(
        key=key,
        title=title,
        unit="s",
        aim="≤ 10 s",
        worst=True,
        against="bare Celery with late ack on kombu's transport, `visibility_timeout` 5 s",
        how=HOW.format(what=what),
        measure=partial(measure, pool),
    )


FIGURES = (
    _figure(
        "give_back_s", "a killed worker's message starts elsewhere, Redis broker", "prefork",
        "that worker's whole process group is",
    ),
    _figure(
        "give_back_processes_s",
        "the message of a killed `angzarr worker` starts elsewhere, Redis broker",
        PROCESSES,
        "that worker's supervisor, its fork server and all its processes are",
    ),
)  # fmt: skip
