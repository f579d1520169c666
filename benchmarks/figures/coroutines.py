"""200 handlers at once that wait for something, in one process: ours on one event loop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, ratios
from peers.catalogue import CATALOGUE, angzarr_worker, celery_workers
from peers.peer import REDIS, Peer
from peers.runs import Work, drain

from figures.sides import EVENTS, PAIRS

#: Handlers at once.
AT_ONCE = 200
#: What each waits for (s).
WORK = Work(wait=0.02)

OURS = replace(
    CATALOGUE["angzarr threads"],
    name="angzarr coroutines",
    commands=lambda n: angzarr_worker(n, "--coroutines", str(AT_ONCE)),
    settings=f"`angzarr worker --processes 1 --coroutines {AT_ONCE}`, prefetch 2",
    environment={"BENCH_PREFETCH": "2", "BENCH_ASYNC": "1"},
)
TASKIQ = replace(
    CATALOGUE["taskiq"],
    commands=lambda n: [
        (
            "taskiq",
            "worker",
            "peers.apps.taskiq_app:broker",
            "-w",
            str(n),
            "--ack-type",
            "when_executed",
            "--log-level",
            "WARNING",
            "--max-async-tasks",
            str(AT_ONCE),
        )
    ],
)
CELERY = replace(
    CATALOGUE["Celery threads"],
    commands=lambda n: celery_workers("threads", AT_ONCE, n),
    environment={"BENCH_PREFETCH": "2"},
)


def rate(of: Peer) -> float:
    return drain(of, REDIS, WORK, EVENTS, processes=1).rate
