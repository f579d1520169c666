"""A worker's answers to health probes (docs/adr/0058).

It asks no server: it reads the state that the loop, the lease thread and the pool have left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from angzarr.adapters.celery.worker.consumer_state import ConsumerState
from angzarr.adapters.celery.worker.settle_thread import Trouble
from angzarr.errors import text_of
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.health_report import Condition, Report, since

#: Seconds that a queue may go unserved, or a slot empty, before a worker is not ready. A child
#: that ended is replaced within a second.
SETTLED_WITHIN: Final = 10.0
#: Seconds for which an event loop may stand still before a probe says so.
TURNS_WITHIN: Final = 1.0


class WorkerHealth:
    """Tells of one worker; asked from any thread.

    A child has *up_within* seconds to be up; *lease_is_sure* and *reaches_store* are the owner
    lease's, *stopping* the worker's; *clock* tells how wrong the machine's is; *log_says* and
    *store_says* tell what stands against its log and its store, *settle_trouble* what keeps its
    parent from settling, *facts_say* what keeps facts from being moved; None: it moves none.
    """

    def __init__(
        self,
        movement: ConsumerState,
        *,
        stalled_after: float,
        up_within: float,
        stopping: Callable[[], bool],
        lease_is_sure: Callable[[], bool],
        reaches_store: Callable[[], bool],
        clock: Callable[[], Condition] | None = None,
        log_says: Callable[[], str] = str,
        store_says: Callable[[], str] = str,
        settle_trouble: Callable[[], Trouble | None] = lambda: None,
        facts_say: Callable[[], str | None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._movement = movement
        self._stalled_after = stalled_after
        self._childless_for = max(stalled_after, up_within)
        self._stopping = stopping
        self._lease_is_sure = lease_is_sure
        self._reaches_store = reaches_store
        self._clock = clock
        self._log_says = log_says
        self._store_says = store_says
        self._settle_trouble = settle_trouble
        self._facts_say = facts_say
        self._monotonic = monotonic
        self._busy_at = float("-inf")
        #: Since when each ask found that the thread that settles does not run.
        self._unsettled_at: float | None = None

    def live(self) -> Report:
        """True if it moves. A server that is away stops nothing: it is tried in turns."""
        if self._stopping():
            stopping = Condition(
                "loop", holds=True, says="the worker stops, and ends within its grace"
            )
            return Report("live", [stopping])
        found = [
            self._loop(self._stalled_after),
            self._consuming(self._stalled_after),
            self._taking(self._stalled_after),
            self._settling(lasts=self._stalled_after),
        ]
        if self._movement.coroutines is not None:
            found.append(self._coroutines(self._stalled_after))
        if self._movement.children is not None:
            found.append(self._some_child())
        return Report("live", found)

    def ready(self) -> Report:
        """True if it takes messages and may run them."""
        stops = self._stopping()
        found = [
            Condition(
                "running",
                holds=not stops,
                says="the worker stops" if stops else "it is not stopping",
            ),
            self._loop(SETTLED_WITHIN),
            self._broker(),
            self._consuming(SETTLED_WITHIN, turned=True),
            self._taking(0.0),
            self._settling(),
            self._lease(),
            self._store(),
            self._log(),
        ]
        if (facts := self._facts_say()) is not None:  # which stop nothing
            found.append(Condition("facts", holds=True, says=facts or "they are moved"))
        if self._clock is not None:
            found.append(self._clock())
        if self._movement.coroutines is not None:
            found.append(self._coroutines(SETTLED_WITHIN))
        if self._movement.children is not None:
            found.append(self._all_children())
        return Report("ready", found)

    # -- conditions ----------------------------------------------------------------------------

    def _loop(self, patience: float) -> Condition:
        if self._movement.is_busy():
            self._busy_at = self._monotonic()
            return Condition("loop", holds=True, says="a task runs on it, as the solo pool does")
        # Between two such tasks the loop has hardly turned.
        still = min(self._movement.pulse.age(), self._monotonic() - self._busy_at)
        return Condition("loop", holds=still <= patience, says=f"it moved {since(still)} ago")

    def _consuming(self, patience: float, *, turned: bool = False) -> Condition:
        movement = self._movement
        if not movement.is_connected or not movement.has_turned:
            says = "it begins" if movement.is_connected else "it connects, in turns"
            return Condition("consuming", holds=not turned, says=says)
        now = self._monotonic()
        late = {
            queue: f"{queue}: {why}, for {since(now - at)}"
            for queue, (at, why) in movement.unserved.items()
        }
        holds = all(now - at <= patience for at, _ in movement.unserved.values())
        says = "; ".join(late.values()) or "the broker is asked for all queues that are not held"
        return Condition("consuming", holds=holds, says=says)

    def _taking(self, patience: float) -> Condition:
        """The condition of the intake: this process may lack what it needs to take messages."""
        receipts, threads = self._movement.receipts, self._movement.threads
        lasts = receipts.lasts()
        if lasts is not None:
            says = f"messages go back, for {since(lasts)}: {receipts.fault}"
            return Condition("taking", holds=lasts <= patience, says=says)
        if threads is not None and threads.is_short:
            says = f"{threads.has} of {threads.most} threads run, no more can be started"
            return Condition("taking", holds=True, says=says)
        return Condition("taking", holds=True, says="what is delivered is taken")

    def _settling(self, lasts: float | None = None) -> Condition:
        """The condition of the settlement of what children do not settle, such as letters.

        With *lasts* it holds, too, if the thread has been gone for at most so many seconds.
        """
        trouble, now = self._settle_trouble(), self._monotonic()
        if trouble is None or not trouble.ended:
            self._unsettled_at = None
        elif self._unsettled_at is None:
            self._unsettled_at = now
        if trouble is None:
            return Condition("settling", holds=True, says="what no child settles is settled")
        gone = 0.0 if self._unsettled_at is None else now - self._unsettled_at
        return Condition("settling", holds=lasts is not None and gone <= lasts, says=trouble.says)

    def _coroutines(self, patience: float) -> Condition:
        """The condition of the event loop: who blocks it stands in the way of all others."""
        watch = self._movement.coroutines
        assert watch is not None  # noqa: S101 - asked before
        still = watch.still_for()
        blocked = f"their loop is blocked for {since(still)}: the log says by what"
        says = "their loop turns" if still <= TURNS_WITHIN else blocked
        return Condition("coroutines", holds=still <= patience, says=says)

    def _some_child(self) -> Condition:
        children = self._movement.children
        assert children is not None  # noqa: S101 - asked before
        gone = children.none_since
        holds = gone is None or self._monotonic() - gone <= self._childless_for
        return Condition(
            "processes", holds=holds, says=f"{children.up} of {children.wanted} are up"
        )

    def _all_children(self) -> Condition:
        children = self._movement.children
        assert children is not None  # noqa: S101 - asked before
        short = children.short_since
        settles = short is None or self._monotonic() - short <= SETTLED_WITHIN
        says = f"{children.up} of {children.wanted} are up"
        return Condition("processes", holds=children.up > 0 and settles, says=says)

    def _broker(self) -> Condition:
        movement = self._movement
        lasted = since(self._monotonic() - movement.changed_at)
        if not movement.is_connected:
            return Condition(
                "broker", holds=False, says=f"not connected for {lasted}, it is tried again"
            )
        return Condition(
            "broker", holds=not movement.away, says=movement.away or f"connected for {lasted}"
        )

    def _lease(self) -> Condition:
        sure = self._lease_is_sure()
        says = "it runs" if sure else "it may have ended: the claim store did not renew it"
        return Condition("lease", holds=sure, says=says)

    def _store(self) -> Condition:
        if unfit := self._store_says():
            return Condition("store", holds=False, says=unfit)
        reached = self._reaches_store()
        says = "it took the last renewal" if reached else "it took no renewal: it is tried again"
        return Condition("store", holds=reached, says=says)

    def _log(self) -> Condition:
        """The condition of the log, which stops nothing; it names lines that were not logged."""
        return Condition("log", holds=True, says=self._log_says() or "its lines are written")


_log = logging.getLogger("angzarr.worker")

#: An operator may change a server's settings at any time.
LOOKED_EVERY: Final = timedelta(minutes=1)


class StoreWatch:
    """Turns: *ask* returns why a server may lose messages, as it is set now; empty: it does not."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._seldom = LogThrottle()
        #: What was found last.
        self.says = ""

    def turn(self) -> timedelta:
        """Ask once. A server that is away is asked again; it says nothing against itself."""
        try:
            says = self._ask()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it
            if self._seldom.now():
                _log.warning("store_not_looked_at: %s", text_of(error))
            return LOOKED_EVERY
        if says:
            _log.critical("store_loses_messages: %s", says)
        elif self.says:
            _log.warning("store_keeps_messages: again")
        self.says = says
        return LOOKED_EVERY

    def leave(self) -> None:
        """End."""
