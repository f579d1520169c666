"""Worker steps: what an app checks and starts in a worker's parent process.

MoverThread: moves what is due in this app's schedule, from a thread of a worker's parent.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import mmap
import os
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import click
from celery import bootsteps
from celery.worker import state

from angzarr.adapters.celery.publish.publisher import LonePublisher, refuses, refuses_for_good
from angzarr.adapters.celery.worker import result_backend
from angzarr.adapters.celery.worker.membership import Membership
from angzarr.delivery.interrupt import BLADE
from angzarr.delivery.schedule import DueMessages
from angzarr.delivery.schedule_mover import Mover
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.events.message import Message
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.resilience.tenure import LEASE, Tenure
from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.periodic_thread import TurnThread

_log = logging.getLogger("angzarr.worker")

#: How often an owner gives a sign of life (2).
RENEWED_EVERY = timedelta(seconds=2)
#: How long after a renewal failed the next is tried: until one works, whatever this worker claims
#: looks like a dead worker's.
RETRIED_EVERY = timedelta(milliseconds=250)
#: After how many renewals expired records are swept, where the store does not do it itself (D4).
_SWEPT_EVERY = 30
#: Seconds that a renewal which is under way gets when the lease is to end.
_PATIENCE = 2.0
#: What `Stopping` says besides 0.
_STOPPING, _CLOSED, _CUTTING = 1, 2, 3


class RefusedToStart(click.ClickException, ConfigurationError):
    """A ConfigurationError that ``celery worker`` prints as one sentence."""


class Stopping:
    """Whether this worker stops: one byte that the parent writes and its children see.

    A warm shutdown sends a prefork child no signal; a child that holds a message must know, and
    one that gets a signal must know whether it means its handler.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 1)

    def begin(self) -> None:
        """Let every process of this worker know."""
        self._page[0] = max(self._page[0], _STOPPING)

    def close(self) -> None:
        """Let nothing begin any more: nothing is consumed, so that nothing comes round again."""
        self._page[0] = max(self._page[0], _CLOSED)

    def closed(self) -> bool:
        """Tell whether a delivery that has not begun goes back."""
        return self._page[0] >= _CLOSED or _told_to_stop()

    def cut(self) -> None:
        """Let them know that the grace has ended as well (16)."""
        self._page[0] = _CUTTING

    @property
    def cutting(self) -> bool:
        """Whether the grace has ended."""
        return self._page[0] == _CUTTING

    def reset(self) -> None:
        """Forget an earlier worker of this process."""
        self._page[0] = 0
        BLADE.sheathe()

    def __call__(self) -> bool:
        """Tell whether the worker stops.

        A solo pool holds on the main thread, where Celery's loop cannot hear of its own signal.
        """
        return self._page[0] != 0 or _told_to_stop()


def _told_to_stop() -> bool:
    return any(
        asked is not None and asked is not False
        for asked in (state.should_stop, state.should_terminate)
    )


class LeaseKeeper:
    """Renews this process tree's owner lease from a thread in the parent until the process ends.

    The same thread keeps the worker a member of its fleet, and compares its clock with the store's,
    behind a renewal and never before one.
    """

    def __init__(
        self,
        tenure: Tenure,
        owner: str,
        sweep: Callable[[], object] | None = None,
        membership: Membership | None = None,
        *,
        clock_watch: ClockWatch | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tenure = tenure
        self._sweep = sweep
        self._membership = membership
        self._clock_watch = clock_watch
        self._monotonic = monotonic
        self._owner = owner
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._seldom = Seldom()
        self._thread: threading.Thread | None = None
        #: Whether the store took the last renewal.
        self.reaches_store = False

    def start(self, stopping: Callable[[], bool]) -> None:
        """Take the lease before the first message, however long the store is away.

        Without it, others would take over what this worker claims and run it beside it. Waits no
        longer once the worker is *stopping*.
        """
        while not self._renew() and not stopping():
            self._ended.wait(RETRIED_EVERY.total_seconds())
        self._compare_clocks()  # before the first message
        self._thread = threading.Thread(target=self._keep, name="angzarr-lease", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """End the lease; what this process tree left pending can be taken over at once."""
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        atexit.unregister(self.end)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)  # or it could renew what has ended
        if self._clock_watch is not None:
            self._clock_watch.leave()
        try:
            self._tenure.end(self._owner)
        except StoreUnavailable:
            _log.warning("owner_lease_not_ended: it expires within %s", LEASE)

    def _keep(self) -> None:
        held, begun = True, self._monotonic()
        self._stay_member()
        for turn in itertools.count(1):
            if self._ended.wait(self._pause(begun) if held else RETRIED_EVERY.total_seconds()):
                return
            begun = self._monotonic()
            held = self._renew()
            if held:
                self._stay_member()
                self._compare_clocks()
            if self._sweep is not None and turn % _SWEPT_EVERY == 0:
                self._try(self._sweep, "expired_claims_not_swept")

    def _pause(self, begun: float) -> float:
        """Return the seconds until the next renewal, whatever was done besides the last one."""
        return max(begun + RENEWED_EVERY.total_seconds() - self._monotonic(), 0.0)

    def _stay_member(self) -> None:
        if self._membership is not None:
            self._membership.renew()

    def _compare_clocks(self) -> None:
        if self._clock_watch is not None:
            self._clock_watch.renew()

    def _renew(self) -> bool:
        renew = partial(self._tenure.renew, self._owner)
        self.reaches_store = self._try(renew, "owner_lease_not_renewed")
        return self.reaches_store

    def _try(self, step: Callable[[], object], failed: str) -> bool:
        """Return whether *step* worked; the thread must outlive whatever goes wrong in it."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a lease that is not renewed is a lost worker
            if self._seldom.now(failed):
                _log.error("%s: %s", failed, error)
            return False
        return True


class RoadStep(bootsteps.StartStopStep):
    """Checks the app before the pool starts, then keeps the owner lease."""

    requires = ()

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        try:
            limits = (worker.time_limit, worker.soft_time_limit)
            worker.app.check_worker(pool_name(worker), limits)
            result_backend.bound_retries(worker.app.conf)
        except ConfigurationError as error:
            raise RefusedToStart(str(error)) from error

    def start(self, worker: Any) -> None:
        """Take the lease; ends the worker where the store that gave it would lose messages."""
        try:
            worker.app.begin_work(pool_name(worker))
        except ConfigurationError as error:
            _log.critical("refused_to_start: %s", error)
            raise SystemExit(1) from error

    def stop(self, worker: Any) -> None:
        """Let children that hold a message give it back; the lease lasts until the pool ended."""
        worker.app.stopping.begin()
        worker.app.stop_settling()

    def close(self, worker: Any) -> None:
        """See `stop`; a worker closes before it waits for its pool."""
        worker.app.stopping.begin()


def pool_name(worker: Any) -> str:
    """Return Celery's short name of the pool that *worker* has."""
    module = str(getattr(worker.pool_cls, "__module__", worker.pool_cls))
    known = {"thread": "threads", "solo": "solo", "gevent": "gevent", "eventlet": "eventlet"}
    return known.get(module.rsplit(".", 1)[-1], "prefork")


class MoverThread(TurnThread):
    """Runs a `Mover`; what a stop finds taken and not published is given back."""

    def __init__(
        self,
        due: DueMessages,
        publisher: LonePublisher,
        set_aside: Callable[[bytes, Exception], None],
        bury: Callable[[Message, Exception], object],
    ) -> None:
        def make(stopping: Callable[[], bool]) -> _Moving:
            mover = Mover(
                due=due,
                publish=publisher.publish,
                refuses=refuses,
                for_good=refuses_for_good,
                set_aside=set_aside,
                bury=bury,
                chance=random.random,
                stopping=stopping,
            )
            return _Moving(mover, publisher)

        super().__init__("angzarr-mover", make)


class _Moving:
    def __init__(self, mover: Mover, publisher: LonePublisher) -> None:
        self._mover = mover
        self._publisher = publisher

    def turn(self) -> timedelta:
        return self._mover.turn()

    def leave(self) -> None:
        self._mover.leave()
        self._publisher.close()
