"""Keeps a worker's owner lease, and its entry in the register of the fleet.

The register serves those who judge failures; no message depends on it. A failure there is logged
and tried again, and the worker goes on.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from angzarr.errors import StoreUnavailable
from angzarr.fleet import SAID_AGAIN, Fleet, Member
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.worker")

#: Seconds that a register which failed is left alone: at first, and at most. Each try may take as
#: long as the store's time-out, on the thread that renews the owner lease.
LEFT_ALONE: Final = (2.0, 30.0)


class Membership:
    """One worker on the register: says what it is at first, when that changed, and once a minute.

    *look* tells what it is at this moment. It ends with the owner lease, by which members count.
    """

    def __init__(
        self,
        fleet: Fleet,
        look: Callable[[], Member],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._look = look
        self._monotonic = monotonic
        self._seldom = LogThrottle(monotonic=monotonic)
        #: What was said last.
        self._said: Member | None = None
        self._say_again_at = float("-inf")
        self._leave_alone = 0.0
        self._again_at = float("-inf")

    def renew(self) -> None:
        """Say what there is to say, unless the register failed just now. Never raises."""
        if self._monotonic() < self._again_at:
            return
        try:
            self._say()
        except Exception as error:  # noqa: BLE001 - a fleet that is not told must not cost a worker
            self._fail(error)
        else:
            self._leave_alone = 0.0

    def _say(self) -> None:
        member = self._look()
        if member != self._said or self._monotonic() >= self._say_again_at:
            self._fleet.register(member)
            self._said = member
            self._say_again_at = self._monotonic() + SAID_AGAIN.total_seconds()

    def _fail(self, error: Exception) -> None:
        least, most = LEFT_ALONE
        self._leave_alone = min(max(2 * self._leave_alone, least), most)
        self._again_at = self._monotonic() + self._leave_alone
        if self._seldom.now():
            _log.warning("fleet_not_told: %s", error)


#: How often an owner gives a sign of life within the span of one lease.
RENEWALS = 4
#: How long after a renewal failed the next is tried: until one works, whatever this worker claims
#: looks like a dead worker's.
RETRIED_EVERY = timedelta(milliseconds=250)
#: After how many renewals expired records are swept, where the store does not do it itself (D4).
_SWEPT_EVERY = 30
#: Seconds that a renewal which is under way gets when the lease is to end.
_PATIENCE = 2.0


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
        self._seldom = LogThrottle()
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
            _log.warning("owner_lease_not_ended: it expires within %s", self._tenure.span)

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
        """The seconds until the next renewal, whatever else was done since the last one."""
        every = self._tenure.span.total_seconds() / RENEWALS
        return max(begun + every - self._monotonic(), 0.0)

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
        """True if *step* worked; the thread must survive any error in it."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a lease that is not renewed is a lost worker
            if self._seldom.now(failed):
                _log.error("%s: %s", failed, error)
            return False
        return True
