"""Site: one run on one broker, from empty servers to a verdict."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from chaos import faults, remains
from chaos.canary import Canary, lapses
from chaos.disturbances import (
    Circumstances,
    Disturbance,
    Outage,
    What,
    ended_with_their_process,
)
from chaos.evidence import Evidence
from chaos.fates import QUEUE, fates_for
from chaos.fleet import Death, Fleet
from chaos.history import Reader
from chaos.injectors import Injected, Injector
from chaos.load import MOST_WAITING
from chaos.publisher import Publisher
from chaos.sender import Sender
from chaos.servers import Servers
from chaos.stream import LARGE, Planned, stream
from chaos.verdict import Verdict, judge

TOOLS = Path(__file__).resolve().parents[1]
#: Seconds without a message anywhere and without a line of history after which the fleet is quiet:
#: longer than what is between a copy's confirmation and its being seen in a queue.
QUIET = 3.0
#: Seconds within which it must be quiet, whatever moves: what the publisher let wait is little,
#: but an event that runs for ever would move for ever.
LONGEST_REST = 120.0
#: The file that says that faults and stream are nearly over: another run may begin to start.
NEARLY = "nearly-over"
#: Seconds that servers and workers take to start.
START = 8.0
#: Seconds that the last events may take to be confirmed when the faults are over.
LATE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run."""

    broker: str
    seconds: float
    seed: int
    folder: Path
    #: Events a second at most; fewer while much is waiting.
    rate: float = 12.0
    #: Only these fates and kinds of fault; empty: all that the broker knows.
    fates: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    mutation: str = ""
    #: Longest wait for the fleet to come to rest, in seconds.
    patience: float = 90.0
    #: Outages of half a minute as well.
    long: bool = False

    def stream(self) -> Iterator[Planned]:
        """Return the events of this run, without an end."""
        return stream(self.seed, self.rate, fates_for(self.broker, self.fates))

    @property
    def streaming(self) -> float:
        """Seconds of publishing: what waits at their end is to begin while faults go on."""
        return self.seconds - min(MOST_WAITING, self.seconds / 4)

    def plan(self) -> list[faults.Fault]:
        """Return the faults of this run."""
        return faults.plan(self.seed, self.seconds, self.broker, self.kinds, long=self.long)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    order: Order
    evidence: Evidence
    verdict: Verdict
    injected: tuple[Injected, ...]
    #: Messages whose publishing was confirmed; seconds for which the publisher waited for the
    #: fleet; seconds that each orderly stop took.
    sends: int
    held: float
    stops: tuple[float, ...]
    seconds: float


@dataclass(slots=True, kw_only=True)
class _Work:
    """A run under way."""

    servers: Servers
    fleet: Fleet
    publisher: Publisher
    injector: Injector
    reader: Reader
    module: Any
    slowest: float = 0.0
    quiet: bool = False
    #: When the store could not be reached as workers reach it.
    silences: list[Outage] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)


def run(order: Order) -> Outcome:
    """Run *order* and return what it came to; raises what keeps it from running at all."""
    began = time.monotonic()
    order.folder.mkdir(parents=True, exist_ok=True)
    with Servers(order.folder, order.broker) as servers:
        fleet = Fleet(order.folder, _environment(order, servers, proxied=True))
        try:
            _say(order, began, "servers are up")
            servers.lanes.make()
            fleet.start()
            _say(order, began, "the fleet is ready")
            work = _work(order, servers, fleet)
            _make_havoc(order, work, began)
            return _outcome(order, work, time.monotonic() - began)
        finally:
            fleet.kill_all()


def _work(order: Order, servers: Servers, fleet: Fleet) -> _Work:
    os.environ.update(_environment(order, servers, proxied=False))
    module = importlib.import_module("chaos.app")
    reader = Reader(order.folder / "history")
    sender = Sender(module, lambda raw: servers.client().lpush(QUEUE, raw))
    publisher = Publisher(sender, reader, fleet.readiness)
    injector = Injector(fleet=fleet, servers=servers, publisher=publisher, reader=reader)
    return _Work(
        servers=servers, fleet=fleet, publisher=publisher, injector=injector, reader=reader,
        module=module,
    )  # fmt: skip


def _say(order: Order, began: float, what: str) -> None:
    print(
        f"  {order.broker:8} {time.monotonic() - began:6.1f} s  {what}", file=sys.stderr, flush=True
    )


def _make_havoc(order: Order, work: _Work, began: float) -> None:
    """Publish and do faults until both are over, wait until all is quiet, stop the fleet."""
    canary = Canary(work.servers.urls(proxied=True)["ANGZARR_STORE"])
    canary.start()
    nearly = threading.Timer(max(0.0, order.seconds - START), (order.folder / NEARLY).touch)
    nearly.start()
    every = len(fates_for(order.broker, order.fates))
    work.publisher.start(order.stream(), order.streaming, least=every)
    work.injector.start(order.plan(), order.seconds)
    work.injector.finish()
    _say(
        order,
        began,
        f"{len(work.injector.done)} faults are over, {work.injector.left_out} left out",
    )
    work.publisher.finish(LATE)
    _say(order, began, f"{len(work.publisher.published)} events are published")
    work.quiet = _rest(work, order.patience)
    _say(order, began, "all is quiet" if work.quiet else "it does not come to rest")
    if not work.quiet:
        work.fleet.tell_where()
    work.claims = remains.claims(work.servers)
    work.silences = canary.stop()
    work.slowest = work.fleet.end()
    work.left = remains.left(work.servers)


def _rest(work: _Work, patience: float) -> bool:
    """Wait until nothing is in any queue, nothing is held, and no handler has said anything.

    What is no rest is *patience* seconds without anything new, or `LONGEST_REST` with it.
    """
    since, seen, moved = time.monotonic(), -1, time.monotonic()
    until = since + LONGEST_REST
    while time.monotonic() < min(moved + patience, until):
        lines = len(work.reader.runs()) + sum(run.closed is not None for run in work.reader.runs())
        try:
            busy = any(remains.left(work.servers).values())
        except (httpx.HTTPError, KeyError):  # RabbitMQ is away, or does not know yet
            busy = True
        if lines != seen:
            moved = time.monotonic()
        if busy or lines != seen:
            since, seen = time.monotonic(), lines
        elif time.monotonic() - since > QUIET:
            return True
        time.sleep(0.25)
    return False


def _outcome(order: Order, work: _Work, seconds: float) -> Outcome:
    ledger = work.module.app.ops.open_ledger()
    try:
        entries = remains.entries(ledger)
    finally:
        ledger.close()
    deaths = work.fleet.deaths
    evidence = Evidence(
        published=tuple(work.publisher.published),
        sent_at=work.publisher.sent_at,
        runs=work.reader.runs(),
        entries=entries,
        around=_circumstances(work),
        seen=work.servers.lanes.seen(),
        left=work.left,
        claims=work.claims,
        deaths=[death.text for death in deaths if not death.allowed],
        refused=work.publisher.refused,
        told=work.servers.facts.ends(),
        revocations=work.publisher.revocations,
        faulted=work.injector.span,
        quiet=work.quiet,
    )
    return Outcome(
        order=order, evidence=evidence, verdict=judge(evidence),
        injected=tuple(sorted(work.injector.done, key=lambda done: done.began)),
        sends=work.publisher.sends, held=work.publisher.held,
        stops=(*work.injector.stops, work.slowest), seconds=seconds,
    )  # fmt: skip


def _circumstances(work: _Work) -> Circumstances:
    """Return what was done to the fleet, and what the canary says of its store."""
    store, apart = (*work.injector.store_outages, *work.silences), work.fleet.apart()
    return Circumstances(
        disturbances=(
            *work.injector.disturbances,
            *map(_ended_by_itself, work.fleet.deaths),
            *ended_with_their_process(work.reader.runs(), apart),
            *lapses(store),
        ),
        outages=(*work.injector.outages, *store),
        apart=apart,
    )


def _ended_by_itself(death: Death) -> Disturbance:
    """Excuse its runs: its end is a breach of its own, which need not be told with each of them."""
    start = death.at - 1.0  # it was noticed later than it happened
    return Disturbance(fault=0, what=What.KILLED, start=start, end=death.at, worker=death.worker)


def _environment(order: Order, servers: Servers, *, proxied: bool) -> dict[str, str]:
    """Return the environment of the run's processes: ours without settings of other apps."""
    ours: Mapping[str, str] = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANGZARR_", "CELERY_", "CHAOS_"))
    }
    path = [str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **ours,
        **servers.urls(proxied=proxied),
        "ANGZARR_LEDGER": f"sqlite:///{order.folder / 'ledger.db'}",
        "ANGZARR_FACTS__LOG": "false",
        **_payloads(order),
        "ANGZARR_ANALYSIS__MAX_REPLAYS": "0",
        "CHAOS_FOLDER": str(order.folder),
        "CHAOS_MUTATION": order.mutation if proxied else "",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def _payloads(order: Order) -> dict[str, str]:
    """Large bodies lie beside the queue, but on Redis, which takes them all."""
    if order.broker == "redis":
        return {}
    return {
        "ANGZARR_PAYLOADS__URL": f"file://{order.folder / 'payloads'}",
        "ANGZARR_PAYLOADS__OVER": str(LARGE // 2),
    }
