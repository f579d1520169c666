"""Disturbances: what an injected fault excuses, and how long. Pure.

A run is *excused* by a disturbance of its worker that may have kept its end from becoming true:
only then may the event run again. Each rule rests on a guarantee:

* A run that wrote its end mark is *settled* `SETTLE` seconds later, since nothing but a fault
  delays that. Where a server that settling needs was away then, or had come back only just, it is
  settled `RETURN` seconds after that server was back: that is how long a held message, or a
  connection, may wait for its next try.
* A worker that was killed, and a child that was: what it had not settled by then.
* A worker that was frozen beyond its lease counts as dead: what it had not settled
  when it was frozen; its runs may overlap with their successors'. What it was just about to begin
  it begins the moment it goes on, though others may have handled it: *stale* runs. What it had
  only claimed it asks about first.
* A child that was frozen, and its parent was not, which renews the lease: nobody may take over what
  it has. It is late, and a hard time limit may have ended it: runs of the handler that has one.
* A worker that was stopped finishes or gives back: a run without an end mark is
  excused, one with an end mark only if it was held for a server that was away, or if the stop
  took so long that it was cut at its deadline.
* A worker that loads its app anew lets its old processes drain, however long that takes: only what
  was held for a server that was away is excused, and nothing that ran.
* A fork server that was killed: its processes stop in order when they notice. So do those of a
  supervisor that was killed. That one of them was frozen excuses nothing.
* A handler that ended its whole process, a consumer of its own: what had ended there before and
  was not settled yet. Its own run is not excused: its start counts.
* The way to RabbitMQ broke: Celery cancels what runs, so a run without an end mark is excused, and
  one with an end mark if it was written about then.
* Redis away, as broker and as store: nothing, unless it was away for so long, or so often in a row,
  that leases may have ended (see `canary`).
* The analysis worker, the dead-letter queue away, a flood of duplicates: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from chaos.fates import LIMITED, ORDERED, TIME_LIMIT
from chaos.history import DYING, FAILED, Run

#: Seconds after its end mark within which a run is settled and acknowledged, on a slow machine.
SETTLE: Final = 2.0
#: Seconds in which a process that goes on writes down what it was just about to begin.
AT_ONCE: Final = 0.5
#: Seconds after which a server that is back is noticed at the latest (`hold.LONGEST_WAIT`).
RETURN: Final = 5.0
#: Seconds of Redis's absence from which on leases (8 s, renewed every 2 s) may have ended.
LEASE_AT_RISK: Final = 4.0
#: Starts that are not counted where a whole process dies: the first, whose claim came with the
#: message.
UNCOUNTED: Final = 1
#: Seconds within which a worker is to end after SIGTERM; later it may cut what runs.
DEADLINE: Final = 7.0


class What(StrEnum):
    """What happened to a worker."""

    KILLED = "killed"
    FROZEN = "frozen"
    CHILD_FROZEN = "frozen in one child"
    STOPPED = "stopped"
    DRAINED = "drained"
    DIED = "ended by its own handler"
    CUT_OFF = "cut off from RabbitMQ"
    LEASES_ENDED = "without Redis for longer than its lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A span in which a worker (empty: all) or one of its processes (0: all) was disturbed.

    `fault` is the number of the fault behind it, 0 for a worker that ended by itself.
    """

    fault: int
    what: What
    start: float
    end: float
    worker: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A span in which no worker could settle: no claim store, or no broker.

    *in_part*: no place for letters, so that what failed cannot be settled; or no lanes, so that
    events of ordered handlers cannot.
    """

    start: float
    end: float
    in_part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """All that happened to workers and servers, and what it excuses."""

    disturbances: Sequence[Disturbance] = ()
    outages: Sequence[Outage] = ()
    #: Workers whose processes are consumers of their own.
    apart: frozenset[str] = frozenset()

    def excuse(self, run: Run, before: float) -> Disturbance | None:
        """Return what excuses *run* and began *before* another run did, or None."""
        found = (one for one in self.disturbances if one.start <= before and self.covers(one, run))
        return next(found, None)

    def is_stale(self, run: Run) -> bool:
        """Tell whether *run* was about to begin when its worker was frozen."""
        return any(
            one.what is What.FROZEN
            and one.worker == run.worker
            and one.pid in (0, run.pid)
            and one.start <= run.began <= one.end + AT_ONCE
            for one in self.disturbances
        )

    def settled_by(self, run: Run) -> float:
        """Return the time by which *run*, which wrote how it ended, is settled at the latest."""
        assert run.closed is not None
        settled = run.closed + SETTLE
        for outage in sorted(self.outages, key=lambda one: one.start):
            matters = not outage.in_part or run.how == FAILED or run.pair[0] == ORDERED
            noticed = outage.end + RETURN
            if matters and outage.start <= settled and noticed >= run.closed:
                settled = max(settled, noticed)
        return settled

    def covers(self, one: Disturbance, run: Run) -> bool:
        """Tell whether *run* may not have come to its end because of *one*."""
        if one.worker not in ("", run.worker) or one.pid not in (0, run.pid):
            return False
        unlimited = one.what is What.CHILD_FROZEN and run.pair[0] != LIMITED
        if unlimited or run.began > one.end or (one.what is What.DIED and run.how == DYING):
            return False
        if run.closed is None:
            return one.what is not What.DRAINED
        settled = self.settled_by(run)
        match one.what:
            case What.STOPPED | What.DRAINED:
                held = settled > run.closed + SETTLE and one.start <= settled
                late = one.end - one.start > DEADLINE and one.what is What.STOPPED
                return held or (late and run.closed >= one.end - SETTLE)
            case What.CUT_OFF:
                return one.start <= settled and run.closed <= one.start + SETTLE
            case _:
                return one.start <= settled


def ended_with_their_process(runs: Iterable[Run], apart: frozenset[str]) -> Iterator[Disturbance]:
    """Yield a disturbance for each of *runs* that ended a whole process of the workers *apart*."""
    for run in runs:
        if run.how == DYING and run.closed is not None and run.worker in apart:
            end = run.closed + (TIME_LIMIT + SETTLE if run.pair[0] == LIMITED else 0.0)
            yield Disturbance(
                fault=0, what=What.DIED, start=run.closed, end=end, worker=run.worker, pid=run.pid
            )
