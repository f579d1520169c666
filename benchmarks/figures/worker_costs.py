"""What a worker costs beside bare Celery's on RabbitMQ: rate at I/O, latency, CPU and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, Final

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import Pair, alternate, differences, in_turn, medians, ratios
from peers.catalogue import ANGZARR_APP, CATALOGUE, OURS, angzarr_worker, celery_workers
from peers.peer import RABBITMQ, Peer
from peers.runs import Latency, PeerDrain, Work, drain, latency

from figures import peers
from figures.sides import EVENTS, PAIRS

PREFORK, BARE = CATALOGUE["angzarr prefork"], CATALOGUE["Celery prefork"]

#: Threads of the one process that waits for I/O.
THREADS: Final = 16
IO: Final = Work(wait=0.005)
_IO_THEIRS: Final = replace(
    CATALOGUE["Celery threads"],
    commands=lambda _n: celery_workers("threads", THREADS, 1),
    settings=f"one worker of {THREADS} threads, prefetch 64; late ack; quorum queues",
)
_IO_OURS: Final = replace(
    CATALOGUE["angzarr threads"],
    commands=lambda _n: celery_workers("threads", THREADS, 1, ANGZARR_APP),
    settings=f"one `celery worker` of {THREADS} threads, prefetch 64; all guarantees on",
)
_IO_PROCESS: Final = replace(
    CATALOGUE["angzarr threads"],
    name="angzarr worker",
    commands=lambda _n: angzarr_worker(1, "--threads", str(THREADS)),
)

#: Events a second, and for how many seconds.
RATE: Final = 200.0
SECONDS: Final = EVENTS / 1000


def measure_latency() -> Measured:
    """Publish at an even pace to each in turn; the value is the difference of both p99."""
    found: dict[str, list[Latency]] = {PREFORK.name: [], BARE.name: []}

    def p99(of: Peer) -> float:
        one = latency(of, RABBITMQ, RATE, round(RATE * SECONDS))
        found[of.name].append(one)
        return one.p99_ms

    pairs = alternate(partial(p99, PREFORK), partial(p99, BARE), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    p50 = {name: median(one.p50_ms for one in runs) for name, runs in found.items()}
    detail = {
        "p99_ms_angzarr": round(middle.ours, 2),
        "p99_ms_celery": round(middle.theirs, 2),
        "p50_ms_angzarr": round(p50[PREFORK.name], 2),
        "p50_ms_celery": round(p50[BARE.name], 2),
        "events_per_second": RATE,
        "events_a_run": round(RATE * SECONDS),
    }
    return Measured(values=differences(pairs), detail={**detail, **_where(PREFORK)})


def measure_cpu() -> Measured:
    """Drain in turn; the ratio is that of `angzarr worker`."""
    found = _drained(lambda one: one.cpu_ms)
    pairs = [Pair(*both) for both in zip(found[OURS.name], found[BARE.name], strict=True)]
    in_prefork = [Pair(*both) for both in zip(found[PREFORK.name], found[BARE.name], strict=True)]
    detail = {
        **{f"ms_{_key(name)}": round(median(runs), 3) for name, runs in found.items()},
        "ratio_of_prefork": round(median(ratios(in_prefork)), 3),
        "events_a_run": EVENTS,
    }
    return Measured(values=ratios(pairs), detail={**detail, **_where(OURS, PREFORK)})


def measure_memory() -> Measured:
    """Drain in turn; the value is that of the worse of our two ways to run processes."""
    found = _drained(lambda one: one.child_pss_mib)
    bare = found[BARE.name]
    above = {
        of.name: [mib - beside for mib, beside in zip(found[of.name], bare, strict=True)]
        for of in (OURS, PREFORK)
    }
    detail = {
        **{f"mib_{_key(name)}": round(median(runs), 1) for name, runs in found.items()},
        **{f"mib_above_{_key(name)}": round(median(runs), 1) for name, runs in above.items()},
        "events_a_run": EVENTS,
    }
    worse = [max(both) for both in zip(*above.values(), strict=True)]
    return Measured(values=worse, detail={**detail, **_where(OURS, PREFORK)})


def _drained(told: Callable[[PeerDrain], float]) -> Mapping[str, list[float]]:
    """What *told* says of each of ours and of bare Celery, in every round."""

    def run(of: Peer) -> float:
        drained = drain(of, RABBITMQ, Work(), EVENTS)
        if drained.handled < EVENTS:
            msg = f"{of.name} handled {drained.handled} of {EVENTS} events in time"
            raise NotMeasured(msg)
        return told(drained)

    all_of = (OURS, PREFORK, BARE)
    rounds = in_turn([partial(run, one) for one in all_of], rounds=PAIRS, discarded=1)
    return {
        one.name: list(runs) for one, runs in zip(all_of, zip(*rounds, strict=True), strict=True)
    }


def _key(name: str) -> str:
    return name.replace(" ", "_")


def _where(*ours: Peer) -> dict[str, Any]:
    return {
        "broker": f"RabbitMQ {servers.rabbitmq_version()}, quorum queues on both sides",
        **{_key(one.name): one.settings for one in ours},
    }


_PROVED = (
    " Ours has all guarantees on: claim, owner lease, start count, breaker, typed decode, fact,"
    " confirmed copies; a run counts only if every event has its completed record and its fact."
)
_DRAINED = "The queue is filled first, then each side's worker drains it with two children. "
_AGAINST_PREFORK = f"a bare Celery task, {BARE.settings}"

FIGURES = (
    Figure(
        key="io_vs_celery",
        title="5 ms of I/O in each handler, 16 threads, RabbitMQ",
        unit="ratio",
        aim="≥ 0.98",
        against=f"a bare Celery task, {_IO_THEIRS.settings}",
        how=(
            "The queue is filled first, then one worker a side drains it; each handler sleeps 5 ms."
            " The rate is that of the handlers' starts over the middle 98 %." + _PROVED
        ),
        measure=partial(
            peers.measure, _IO_THEIRS, RABBITMQ, ours=_IO_OURS, work=IO, beside=[_IO_PROCESS]
        ),
    ),
    Figure(
        key="p99_added_ms",
        title="p99 of the latency at 200 events a second above bare Celery's",
        unit="ms",
        aim="≤ 2 ms",
        against=_AGAINST_PREFORK,
        how=(
            "The latency is from the call that publishes an event to the start of its handler; the"
            " workers are warm and have nothing else to do. The value is our p99 minus Celery's of"
            " the run beside it." + _PROVED
        ),
        measure=measure_latency,
    ),
    Figure(
        key="cpu_per_event",
        title="CPU time of `angzarr worker` for one event, RabbitMQ",
        unit="ratio",
        aim="≤ 0.5",
        against=_AGAINST_PREFORK,
        how=(
            _DRAINED + "The CPU time is that of all processes of a worker, from a tenth of the"
            " events to the last, divided by the number of these." + _PROVED
        ),
        measure=measure_cpu,
    ),
    Figure(
        key="memory_per_child_mib",
        title="memory of a process that runs handlers above bare Celery's",
        unit="MiB",
        aim="≤ 25 MiB",
        against=_AGAINST_PREFORK,
        how=(
            _DRAINED + "The proportional set size of its processes that have no child of their own,"
            " at the end: the mean of ours minus the mean of Celery's. Both a process of `angzarr"
            " worker` and a prefork child are measured; the larger counts." + _PROVED
        ),
        measure=measure_memory,
    ),
)
