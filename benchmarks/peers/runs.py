"""Runs: one peer at one kind of work, measured from outside by stamps, /proc and nothing else."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles

from harness import servers
from harness.figure import NotMeasured
from harness.pairs import middle_rate
from harness.private_redis import private_redis
from harness.worker import BENCHMARKS, Worker
from workers.stamps import Stamps

from peers.peer import REDIS, Peer

#: How long one drain is watched; a peer that is not through by then is judged by what it did.
WATCHED = float(os.environ.get("BENCH_PEERS_SECONDS", "60"))
#: The first event has to start within so many seconds.
STARTS_WITHIN = 60.0
#: What was asked to stop and has not by then is killed: all is measured (s).
ENDS_WITHIN = 5.0
#: Publishing ahead is not measured, so it waits for no confirm where that is told apart.
AHEAD = {"BENCH_UNCONFIRMED": "1"}
#: Between two looks.
LOOK = 0.05
#: From here on a worker counts as warm: as a share of the events.
WARM = 0.1
#: All workers are killed when so many events have started, as a share of all.
KILLED_AT = 0.3
#: What a killed worker had in hand is waited for so long (s): the slowest promise below minutes.
BACK_WITHIN = float(os.environ.get("BENCH_PEERS_BACK_WITHIN", "90"))
#: Events before a latency is measured.
FIRST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a handler does, and every how manieth event fails once (0: none)."""

    wait: float = 0.0
    spin: float = 0.0
    fails_every: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDrain:
    """Events a second over the middle 98 %, what one costs, memory at the end, how many ran.

    *child_pss_mib* is the mean of the processes that run handlers.
    """

    rate: float
    cpu_ms: float
    pss_mib: float
    child_pss_mib: float
    rss_mib: float
    handled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From the call that publishes an event to the start of its handler, in milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Events that were not done BACK_WITHIN seconds after all workers were killed and replaced."""

    missing: int


class PeerSite:
    """One peer with a broker of its own and a folder for its stamps."""

    def __init__(self, peer: Peer, events: int, folder: Path, environment: Mapping[str, str]):
        self.peer, self.events, self.folder = peer, events, folder
        self.environment = environment
        self.stamps = Stamps.create(folder / "stamps", events)
        self.published = Stamps.create(folder / "published", events)
        self.done = Stamps.create(folder / "done", events)
        Stamps.create(folder / "failed", events)
        self.workers: list[Worker] = []

    def publish(self, first: int, events: int, rate: float = 0.0) -> None:
        """Publish through the peer's own client and return when that is through."""
        environment = {**self.environment, **({} if rate else AHEAD)}
        ran = subprocess.run(
            [str(self.peer.bin / "python"), "-m", "peers.apps.publish", self.peer.app,
             str(first), str(events), str(rate)],
            env=environment, cwd=BENCHMARKS, check=False, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        if ran.returncode:
            msg = f"{self.peer.name} did not publish: {ran.stderr[-1000:]}"
            raise NotMeasured(msg)

    @contextmanager
    def running(self, processes: int) -> Iterator[None]:
        """Start all its workers, and stop them at the end."""
        log = self.folder / "log"
        try:
            for line in self.peer.command_lines(processes):
                self.workers.append(Worker(line, self.environment, log))
            yield
        finally:
            while self.workers:
                worker = self.workers.pop()
                worker.asked_to_stop(ENDS_WITHIN)
                worker.kill()

    def wait_for(self, events: int, patience: float) -> bool:
        """True once so many events have started; False if they have not within *patience* (s)."""
        return self._wait_for(self.stamps, events, patience)

    def wait_done(self, patience: float) -> bool:
        """True once all events are done; False if they are not within *patience* (s)."""
        return self._wait_for(self.done, self.events, patience)

    def kill(self) -> None:
        """End all its workers at once, as a machine does that goes away."""
        while self.workers:
            self.workers.pop().kill()

    def _wait_for(self, stamps: Stamps, events: int, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while stamps.count() < events:
            for worker in self.workers:
                worker.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK)
        return True

    def cpu_seconds(self) -> float:
        """The processor time of all its processes."""
        return sum(worker.cpu_seconds() for worker in self.workers)

    def log(self) -> str:
        """All that its workers wrote."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")


def drain(
    peer: Peer, kind: str, work: Work, events: int, *, processes: int = 2, durable: bool = False
) -> PeerDrain:
    """Fill a queue, start the peer's workers, and watch until all events ran or WATCHED is over.

    *kind* of broker: redis or rabbitmq; *durable*: Redis writes its append-only file. Raises
    NotMeasured if hardly anything ran, or if all ran without the guarantees that the row claims.
    """
    with _site(peer, kind, work, events, durable=durable) as site:
        site.publish(0, events)
        with site.running(processes):
            if not site.wait_for(max(1, int(events * WARM)), STARTS_WITHIN):
                raise _idle(site)
            began, cpu = site.stamps.count(), site.cpu_seconds()
            site.wait_for(events, WATCHED)
            handled, used = site.stamps.count(), site.cpu_seconds() - cpu
            pss = sum(worker.pss_mib() for worker in site.workers)
            of_children = [mib for worker in site.workers for mib in worker.child_pss_mib()]
            rss = sum(worker.rss_mib() for worker in site.workers)
        if handled == events:
            peer.check(site.log(), site.environment, events)
        return PeerDrain(
            rate=middle_rate(site.stamps.seconds()),
            cpu_ms=1000 * used / (handled - began) if handled > began else 0.0,
            pss_mib=pss,
            child_pss_mib=fmean(of_children),
            rss_mib=rss,
            handled=handled,
        )


def latency(peer: Peer, kind: str, rate: float, events: int) -> Latency:
    """Publish *events* at an even *rate* to workers that are warm, and see when each starts.

    Raises NotMeasured if some did not, or did without the guarantees that the row claims.
    """
    with _site(peer, kind, Work(), FIRST + events) as site:
        with site.running(2):
            site.publish(0, FIRST)
            if not site.wait_for(FIRST, STARTS_WITHIN):
                raise _idle(site)
            site.publish(FIRST, events, rate)
            if not site.wait_for(FIRST + events, WATCHED):
                raise _idle(site)
        peer.check(site.log(), site.environment, FIRST + events)
        numbers = range(FIRST, FIRST + events)
        waits = [site.stamps.moment(one) - site.published.moment(one) for one in numbers]
    cuts = quantiles(waits, n=100)
    return Latency(p50_ms=1000 * cuts[49], p99_ms=1000 * cuts[98])


def kill(peer: Peer, kind: str, work: Work, events: int) -> Killed:
    """Kill all workers with SIGKILL amid their work, start as many anew, and see what is left.

    What comes back later than BACK_WITHIN counts as missing, as does what never does.
    """
    with _site(peer, kind, work, events) as site:
        site.publish(0, events)
        with site.running(2):
            if not site.wait_for(int(events * KILLED_AT), STARTS_WITHIN):
                raise _idle(site)
            site.kill()
        if site.done.count() == events:
            msg = f"{peer.name} had done all events before it was killed"
            raise NotMeasured(msg)
        with site.running(2):
            site.wait_done(BACK_WITHIN)
        return Killed(missing=events - site.done.count())


def _idle(site: PeerSite) -> NotMeasured:
    return NotMeasured(
        f"{site.peer.name} started {site.stamps.count()} of {site.events} events:"
        f" {site.log()[-1000:]}"
    )


@contextmanager
def _site(
    peer: Peer, kind: str, work: Work, events: int, *, durable: bool = False
) -> Iterator[PeerSite]:
    server = private_redis(appendonly=durable) if kind == REDIS else servers.virtual_host()
    with tempfile.TemporaryDirectory(prefix="angzarr-peers-") as name, server as broker:
        folder = Path(name)
        with peer.place(broker, folder) as place:
            environment = {
                **os.environ,
                "PYTHONPATH": str(BENCHMARKS),
                "BENCH_BROKER": broker,
                "BENCH_QUEUE": "bench",
                "BENCH_FOLDER": name,
                "BENCH_WAIT": str(work.wait),
                "BENCH_SPIN": str(work.spin),
                "BENCH_FAILS_EVERY": str(work.fails_every),
                "RELIER_REDIS_URL": broker,
                **peer.environment,
                **place,
            }
            yield PeerSite(peer, events, folder, environment)
