"""SupervisedProcess: a worker that is one of several processes under one supervisor.

It says twice a second how it does, and drains when it is asked to, or has used up what it may: it
takes no more messages, and ends once what runs has ended. A process whose supervisor is gone stops.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celery.worker import state

from angzarr.adapters.celery.worker.time_limits import TimeLimits
from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import OwnerLeases
from angzarr.runtime.processes import PeriodicThread
from angzarr.supervisor.process_link import ProcessLink

if TYPE_CHECKING:
    from angzarr.adapters.celery.worker.worker_health import WorkerHealth

_log = logging.getLogger("angzarr.worker")

#: How often a process says how it does.
SAID_EVERY: Final = timedelta(milliseconds=500)
_STATM: Final = Path("/proc/self/statm")


class SupervisedProcess:
    """This process, as its supervisor knows it."""

    def __init__(self, link: ProcessLink) -> None:
        self._link = link
        #: How many tasks its pool runs at once, and how many KiB it may use; 0: no limit.
        self.capacity = 1
        self.most_memory = 0
        #: How many tasks that are not async it runs at once beside its coroutines.
        self.sync_threads = 1
        #: How long a handler may keep its event loop before the log names it.
        self.loop_blocked_after = timedelta(seconds=1)
        self._draining = ""
        self._is_ending = False
        self._lock = threading.Lock()
        self._thread: PeriodicThread | None = None
        #: Ends this process at once; what its shutdown is, once it has one.
        self.cut: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGTERM)
        self.time_limits = TimeLimits(self.end, link.page)
        self._waits: TimedPoller | None = None

    def measure(self, hub: Any) -> None:
        """Measure from now on how long the loop of *hub* waits for something to do."""
        self._waits = hub.poller = TimedPoller(hub.poller)

    def begin(self, owner: str, health: WorkerHealth, leases: OwnerLeases) -> None:
        """Say from now on how this process does; end the *leases* of processes that died."""
        self._thread = PeriodicThread(
            "angzarr-report", lambda _stopping: _Reports(lambda: self._report(owner, health))
        )
        self._thread.start()
        self._free_predecessors(leases)

    def drain(self, why: str) -> None:
        """Take no more messages, and end once what runs has ended; safe from any thread."""
        with self._lock:
            if self._draining:
                return
            self._draining = why
        _log.info("draining: %s", why)
        self._link.say(draining=why)
        os.kill(os.getpid(), signal.SIGHUP)

    def end(self, why: str) -> None:
        """End at once: what runs is cut and runs again elsewhere; safe from any thread."""
        if self._is_ending:
            return
        self._is_ending = True
        with self._lock:
            self._draining = why
        _log.error("process_ends: %s", why)
        self._link.say(draining=why)
        self.cut()

    def leave(self, why: str) -> None:
        """Tell the supervisor that others ended this process, which is not to be replaced."""
        self._link.say(left=why, draining=why)

    def _load(self) -> float:
        """How busy it is, from 0 to 1: by its loop where that runs the tasks, else by its slots.

        Slots alone say little of short tasks on the loop: it may do nothing but run one after the
        other, and yet be seen between two of them.
        """
        if self.capacity > 1 or self._waits is None:
            return min(1.0, len(state.active_requests) / self.capacity)
        return 1.0 - self._waits.share()

    def _free_predecessors(self, leases: OwnerLeases) -> None:
        """End the leases of processes that died: what they claimed can be taken over at once."""
        for owner in self._link.owners:
            try:
                leases.end(owner)
            except StoreUnavailable as error:
                _log.warning("owner_lease_not_ended: it expires by itself: %s", error)

    def _report(self, owner: str, health: WorkerHealth) -> None:
        live, ready = health.live(), health.ready()
        listens = self._link.say(
            owner=owner,
            live=live.holds,
            ready=ready.holds,
            conditions={
                "live": [list(one) for one in live.conditions],
                "ready": [list(one) for one in ready.conditions],
            },
            load=self._load(),
            draining=self._draining,
        )
        if not listens:
            _log.error("supervisor_gone: this process stops")
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.most_memory and (used := _resident()) > self.most_memory:
            self.drain(f"it uses {used} KiB of memory, {self.most_memory} are its limit")


class TimedPoller:
    """A poller of an event loop that knows how long it has waited."""

    def __init__(self, poller: Any, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._poller = poller
        self._now = monotonic
        self._waited = 0.0
        self._since: float | None = None
        self._asked = (monotonic(), 0.0)

    def __getattr__(self, name: str) -> Any:
        """All else is the poller's."""
        return getattr(self._poller, name)

    def poll(self, *args: Any) -> Any:
        """Wait as the poller does."""
        self._since = begun = self._now()
        try:
            return self._poller.poll(*args)
        finally:
            self._since = None
            self._waited += self._now() - begun

    def share(self) -> float:
        """The part of the time since it was asked last, from 0 to 1, that it waited."""
        now, since = self._now(), self._since
        waited = self._waited + (0.0 if since is None else now - since)
        (asked_at, before), self._asked = self._asked, (now, waited)
        return min(1.0, max(0.0, (waited - before) / max(now - asked_at, 1e-9)))


class _Reports:
    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report

    def turn(self) -> timedelta:
        try:
            self._report()
        except Exception:  # noqa: BLE001 - a process that says nothing is killed
            _log.exception("not_reported")
        return SAID_EVERY

    def leave(self) -> None:
        """End."""


def _resident() -> int:
    """The resident memory of this process in KiB; 0 where the system does not tell."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
