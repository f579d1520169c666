"""Survey: how ordered handlers do, counted beside the pages and never for one of them.

To count lanes takes a tenth of a second for a million, to count what is behind event books takes
seconds. So it is counted while somebody looks, rests for nine times as long as it took, and every
page says how old it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from angzarr.clock import Clock
from angzarr.dashboard.ordered_desk import BOOKS, LANES, OrderedDesk
from angzarr.dashboard.problem import Problem, asking, crash, not_found, problem_of
from angzarr.projections.lag import Lag, lag_of
from angzarr.projections.ordered_handler import HandlerRow, row_of

_log = logging.getLogger(__name__)

#: How old what is shown may be at least: what was counted of lanes, and of event books.
FRESH: Final = timedelta(seconds=5)
LAG_FRESH: Final = timedelta(seconds=30)
#: So many times as long as it took, nothing is counted.
_REST: Final = 9
#: How long a database that was away is not asked again.
AWAY: Final = timedelta(seconds=15)
#: Seconds that the list waits where nothing was counted yet, and whoever can show nothing else.
FIRST: Final = 0.1
WHOLE: Final = 2.0
#: Seconds for which a count that is under way is waited for in the end.
_PATIENCE: Final = 2.0

#: Has work done; in a thread, so that nobody waits.
Start: TypeAlias = Callable[[Callable[[], None]], object]


class Seen(NamedTuple):
    """An ordered handler, and how it did."""

    row: HandlerRow
    #: False: the app of this process does not register it.
    is_registered: bool
    #: How many workers run it; None: not known.
    workers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was counted last."""

    seen: tuple[Seen, ...] = ()
    #: When the lanes were counted; None: they were not yet. A lag says itself when it was.
    at: datetime | None = None
    #: Why there is nothing newer, if there is not.
    problem: Problem | None = None

    def find(self, name: str) -> Seen:
        """Return the one that is called *name*, or has it as task name; raises Problem."""
        for one in self.seen:
            if name in (one.row.one.name, one.row.one.task):
                return one
        raise self.problem or (uncounted() if self.at is None else not_found("ordered handler"))


def uncounted() -> Problem:
    """Return that nothing is known yet."""
    msg = "ordered handlers are being counted for the first time: ask again"
    return Problem(503, "busy", msg, headers={"Retry-After": "1"})


class Surveyor:
    """Counts when somebody looks and it is time; one thread at a time. Safe to use from threads."""

    def __init__(self, desk: OrderedDesk, clock: Clock, start: Start | None = None) -> None:
        self._desk, self._clock, self._start = desk, clock, start or _in_thread
        self._known = Survey()
        self._due: datetime | None = None
        self._lag_due: datetime | None = None
        self._busy = threading.Lock()
        self._told = threading.Event()
        self._ending = False

    def look(self, patience: float = FIRST) -> Survey:
        """Return what was counted last, and have it counted again if it is time.

        Waits *patience* seconds for the first count.
        """
        if self._is_due() and self._busy.acquire(blocking=False):
            self._start(self._turn)
        if not self._told.is_set():
            self._told.wait(patience)
        return self._known

    def find(self, name: str) -> Seen:
        """Return the one that is called *name*, or has it as task name; raises Problem."""
        return self.look(WHOLE).find(name)

    def close(self) -> None:
        """Count no more; wait a little for the count that is under way."""
        self._ending = True
        if self._busy.acquire(timeout=_PATIENCE):
            self._busy.release()

    def _is_due(self) -> bool:
        return not self._ending and (self._due is None or self._due <= self._clock.now())

    def _turn(self) -> None:
        try:
            self._count()
        except Exception as error:  # noqa: BLE001 - pages say it, and a thread has no caller
            self._fail(error)
        finally:
            self._told.set()
            self._busy.release()

    def _count(self) -> None:
        began = self._clock.now()
        with asking(LANES):
            self._show(Survey(seen=tuple(self._lanes()), at=began))
        self._due = self._rested(began, FRESH)
        if self._lag_due is None or self._lag_due <= began:
            with asking(BOOKS):
                self._lags()

    def _lanes(self) -> list[Seen]:
        lags = {one.row.one.task: one.row.lag for one in self._known.seen}
        found = self._desk.all()
        workers = self._desk.workers(one.task for one, _ in found)
        lanes, checkpoints = self._desk.stores()
        rows = [row_of(one, lanes, checkpoints, lags.get(one.task)) for one, _ in found]
        return [
            Seen(row, is_mine, None if workers is None else workers[row.one.task])
            for row, (_, is_mine) in zip(rows, found, strict=True)
        ]

    def _lags(self) -> None:
        began = self._clock.now()
        store = self._desk.books()
        for number, one in enumerate(self._known.seen):
            if self._ending:
                return
            lag = lag_of(
                one.row.one.task,
                one.row.one.order,
                store=store,
                lanes=self._desk.stores().lanes,
                now=self._clock.now(),
            )
            self._show(replace(self._known, seen=_with(self._known.seen, number, lag)))
        self._lag_due = self._rested(began, LAG_FRESH)
        self._due = self._rested(began, FRESH)

    def _show(self, survey: Survey) -> None:
        self._known = survey
        self._told.set()

    def _rested(self, began: datetime, least: timedelta) -> datetime:
        now = self._clock.now()
        return now + max(least, (now - began) * _REST)

    def _fail(self, error: Exception) -> None:
        self._due = self._clock.now() + AWAY
        problem = problem_of(error)
        if problem is None:
            problem = crash()
            _log.error("ordered_handlers_not_counted", exc_info=error)
        self._known = replace(self._known, problem=problem)


def _with(seen: Sequence[Seen], number: int, lag: Lag) -> tuple[Seen, ...]:
    changed = seen[number]._replace(row=seen[number].row._replace(lag=lag))
    return (*seen[:number], changed, *seen[number + 1 :])


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="angzarr-survey", daemon=True).start()
