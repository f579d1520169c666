"""Comparison: which runs make the table, in what order, and what the book keeps of them.

The peers run in turn, round by round, so that a slow hour of the machine meets all of them. What
one could not do is kept as its reason.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from harness import machine
from harness.figure import NotMeasured

from peers.peer import Peer
from peers.runs import BACK_WITHIN, Work, drain, kill, latency

#: Events of a drain. Smaller for a quick look; the table says how many there were.
EVENTS = int(os.environ.get("BENCH_EVENTS", "10000"))
ROUNDS = int(os.environ.get("BENCH_PEERS_ROUNDS", "3"))
#: Of the latency: events a second, and for how many seconds.
RATE = float(os.environ.get("BENCH_PEERS_RATE", "200"))
LATENCY_SECONDS = float(os.environ.get("BENCH_PEERS_LATENCY", "10"))
#: Worker processes, and events that wait before a worker starts.
PROCESSES = os.environ.get("BENCH_PEERS_PROCESSES", "1,2,4,8")
BACKLOG = os.environ.get("BENCH_PEERS_BACKLOG", "1000,10000,100000")

#: What one run of one peer on one kind of broker gives, by name.
Run = Callable[[Peer, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One comparison of the peers: what it is called, what it tells, and how one is run."""

    key: str
    title: str
    conditions: Mapping[str, Any]
    run: Run
    #: A handler of it fails, so a peer that retries nothing cannot take part.
    fails: bool = False


def _drained(key: str, title: str, work: Work, events: int) -> Workload:
    return Workload(
        key=key,
        title=title,
        conditions={"events": events},
        run=lambda peer, kind: asdict(drain(peer, kind, work, events)),
        fails=work.fails_every > 0,
    )


def _latency(peer: Peer, kind: str) -> Mapping[str, float]:
    return asdict(latency(peer, kind, RATE, round(RATE * LATENCY_SECONDS)))


def _killed(peer: Peer, kind: str) -> Mapping[str, float]:
    return asdict(kill(peer, kind, Work(wait=0.02), EVENTS // 10))


def _by_processes(peer: Peer, kind: str) -> Mapping[str, float]:
    return {
        size: drain(peer, kind, Work(), EVENTS, processes=int(size)).rate
        for size in PROCESSES.split(",")
    }


def _by_backlog(peer: Peer, kind: str) -> Mapping[str, float]:
    return {size: drain(peer, kind, Work(), int(size)).rate for size in BACKLOG.split(",")}


WORKLOADS: Mapping[str, Workload] = {
    one.key: one
    for one in (
        _drained("noop", "no-op", Work(), EVENTS),
        _drained("io", "5 ms of I/O", Work(wait=0.005), EVENTS // 5),
        _drained("cpu", "5 ms of CPU", Work(spin=0.005), EVENTS // 5),
        _drained("fails_1", "1 % fail once", Work(fails_every=100), EVENTS),
        _drained("fails_20", "20 % fail once", Work(fails_every=5), EVENTS),
        Workload(
            key="latency",
            title="latency",
            conditions={"events_per_second": RATE, "events": round(RATE * LATENCY_SECONDS)},
            run=_latency,
        ),
        Workload(
            key="kill",
            title="all workers killed",
            conditions={"events": EVENTS // 10, "back_within_s": BACK_WITHIN},
            run=_killed,
        ),
        Workload(
            key="processes",
            title="from few processes to many",
            conditions={"events": EVENTS, "processes": PROCESSES},
            run=_by_processes,
        ),
        Workload(
            key="backlog",
            title="from a short queue to a long one",
            conditions={"queued": BACKLOG},
            run=_by_backlog,
        ),
    )
}


def compare(kind: str, workload: Workload, peers: Sequence[Peer], rounds: int) -> dict[str, Any]:
    """Run *peers* in turn, *rounds* times; return what the book keeps."""
    around = machine.circumstances()
    found: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
    reasons: dict[str, str] = {}
    taking_part = [peer for peer in peers if kind in peer.brokers]
    for _ in range(rounds):
        for peer in taking_part:
            if peer.name in reasons:
                continue
            try:
                found[peer.name].append(_run(workload, peer, kind))
            except NotMeasured as error:
                reasons[peer.name] = str(error)
            print(f"  {kind} {workload.key} {peer.name}: {_told(found, reasons, peer)}", flush=True)
    return {
        "conditions": {**workload.conditions, "rounds": rounds, **around},
        "rows": {
            peer.name: {"reason": reasons[peer.name]}
            if peer.name in reasons
            else {**_medians(found[peer.name]), "release": peer.version()}
            for peer in taking_part
        },
    }


def _run(workload: Workload, peer: Peer, kind: str) -> Mapping[str, float]:
    if workload.fails and not peer.retries:
        msg = "retries no error of a handler"
        raise NotMeasured(msg)
    return workload.run(peer, kind)


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(f"{median(run[name] for run in runs):.4g}") for name in runs[0]}


def _told(found: Mapping[str, Sequence[Any]], reasons: Mapping[str, str], peer: Peer) -> str:
    if peer.name in reasons:
        return f"not measured: {reasons[peer.name]}"
    return ", ".join(f"{name} {value:,.4g}" for name, value in found[peer.name][-1].items())
