"""Our Redis transport under plain Celery, against kombu's: how fast a worker empties a queue."""

from __future__ import annotations

from functools import partial

from harness import servers
from harness.drain import drain
from harness.figure import Figure, Measured
from harness.pairs import alternate, medians, ratios
from harness.private_redis import private_redis
from harness.site import Side

from figures.sides import EVENTS, OURS, PAIRS, PREFETCH_IN, STOCK, load, pool_of, prefetch_of


def measure(pool: str) -> Measured:
    """Drain in turn, each run on a fresh Redis."""

    def rate(side: Side) -> float:
        with private_redis() as url:
            return drain(side, load(url, pool)).rate

    pairs = alternate(partial(rate, OURS), partial(rate, STOCK), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    return Measured(
        values=ratios(pairs),
        detail={
            "tasks_per_second_ours": round(middle.ours),
            "tasks_per_second_kombu": round(middle.theirs),
            "tasks_a_run": EVENTS,
            "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
            "pool": pool_of(pool),
            "prefetch_multiplier": prefetch_of(PREFETCH_IN[pool]),
        },
    )


_HOW = (
    "Plain Celery, the same app and body on both sides, late ack, no results, no remote control;"
    " only `broker_transport` differs. The queue is filled first; then one worker with {pool}"
    " drains it. The rate is that of the tasks' starts, stamped where they run, over the"
    " middle 98 %. A run counts only if every task ran."
)

FIGURES = (
    Figure(
        key="transport_vs_kombu",
        title="plain Celery on our Redis transport",
        unit="ratio",
        aim="≥ 2",
        against="the same app on kombu's Redis transport, prefork 2",
        how=_HOW.format(pool="two prefork children"),
        measure=partial(measure, "prefork"),
    ),
    Figure(
        key="transport_vs_kombu_threads",
        title="the same in threads",
        unit="ratio",
        aim="≥ 6",
        against="the same app on kombu's Redis transport, threads 2",
        how=_HOW.format(pool="two threads") + " At a multiplier of 4, Celery's default, an earlier"
        " measurement gave 5.2 (4.1 to 5.2).",
        measure=partial(measure, "threads"),
    ),
)
