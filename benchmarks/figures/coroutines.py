"""200 handlers at once that wait for something, in one process: ours on one event loop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, ratios
from peers.catalogue import CATALOGUE, angzarr_worker, celery_workers
from peers.peer import REDIS, Peer
from peers.runs import Work, drain

from figures.sides import EVENTS, PAIRS

#: Handlers at once.
AT_ONCE: Final = 200
#: What each waits for (s).
WORK: Final = Work(wait=0.02)
#: So much is prefetched, as a multiple of what runs at once, where a peer has a word for it.
PREFETCH: Final = "2"

OURS: Final = replace(
    CATALOGUE["angzarr threads"],
    name="angzarr coroutines",
    commands=lambda n: angzarr_worker(n, "--coroutines", str(AT_ONCE)),
    settings=(
        f"`angzarr worker --processes 1 --coroutines {AT_ONCE}`, prefetch {PREFETCH}; all"
        " guarantees on"
    ),
    environment={"BENCH_PREFETCH": PREFETCH, "BENCH_ASYNC": "1"},
)
TASKIQ: Final = replace(
    CATALOGUE["taskiq"],
    commands=lambda n: [
        ("taskiq", "worker", "peers.apps.taskiq_app:broker", "-w", str(n), "--ack-type",
         "when_executed", "--log-level", "WARNING", "--max-async-tasks", str(AT_ONCE))
    ],
    settings=f"1 process, {AT_ONCE} coroutines, ack when executed; Redis streams",
)  # fmt: skip
#: Measured once beside each pair, for its rate alone.
BESIDE: Final = (
    replace(
        CATALOGUE["Celery threads"],
        commands=lambda n: celery_workers("threads", AT_ONCE, n),
        environment={"BENCH_PREFETCH": PREFETCH},
    ),
    replace(
        CATALOGUE["dramatiq"],
        commands=lambda n: [
            ("dramatiq", "peers.apps.dramatiq_app", "-p", str(n), "-t", str(AT_ONCE))
        ],
    ),
)


def rate(of: Peer) -> float:
    """The events a second of one process of *of*; raises NotMeasured if it is not through."""
    drained = drain(of, REDIS, WORK, EVENTS, processes=1)
    if drained.handled < EVENTS:
        msg = f"{of.name} handled {drained.handled} of {EVENTS} events in time"
        raise NotMeasured(msg)
    return drained.rate


def measure() -> Measured:
    """Drain in turn, each run on a fresh Redis."""
    pairs = alternate(partial(rate, OURS), partial(rate, TASKIQ), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    detail = {
        "events_per_second_ours": round(middle.ours),
        "events_per_second_theirs": round(middle.theirs),
        **{f"events_per_second_{of.name.replace(' ', '_')}": round(rate(of)) for of in BESIDE},
        "events_a_run": EVENTS,
        "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
        "ours": OURS.settings,
        "theirs": f"taskiq {TASKIQ.version()}: {TASKIQ.settings}",
    }
    return Measured(values=ratios(pairs), detail=detail)


FIGURES = (
    Figure(
        key="coroutines_vs_taskiq",
        title="200 handlers at once that wait 20 ms, in one process on Redis, against taskiq",
        unit="ratio",
        aim="≥ 1.5",
        against=f"taskiq: {TASKIQ.settings}",
        how=(
            "The queue is filled first, then one process a side drains it. Each handler awaits a"
            " timer of 20 ms. The rate is that of the handlers' starts over the middle 98 %,"
            " stamped the same way on both sides. A run of ours counts only if every event has its"
            " completed record and its fact. Bare Celery and dramatiq run the same with 200"
            " threads, once."
        ),
        measure=measure,
    ),
)
