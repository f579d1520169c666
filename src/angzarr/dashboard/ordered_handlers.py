"""Ordered handlers: their stores, and a survey of how they do, counted beside the pages.

Counting the lanes takes a tenth of a second for a million; counting what is behind the event books
takes seconds. The survey counts while somebody looks and rests for nine times as long as it took.
Every page says how old the figures are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from angzarr.aggregates.book import EventStore
from angzarr.clock import Clock
from angzarr.dashboard.problem import Problem, asking, crash, not_found, problem_of
from angzarr.errors import AngzarrError
from angzarr.fleet import Member
from angzarr.ordering.lane import Known, Order
from angzarr.projections.checkpoint import Lag, OrderingStores, lag_of
from angzarr.projections.ordered_handler import HandlerRow, OrderedHandler, row_of
from angzarr.projections.projection import handler_name

_PROJECTION: Final = handler_name("")
#: What people call them where they do not answer.
LANES: Final = "the database of ordered handlers"
BOOKS: Final = "the database of event books"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedServices:
    """What is asked about ordered handlers. All raise AngzarrError."""

    #: What the app that this process was given registers: none of them, where it loads no handlers.
    registered: Callable[[], Sequence[OrderedHandler]]
    stores: Callable[[], OrderingStores]
    #: None: there are no event books.
    books: Callable[[], EventStore | None]
    #: The workers that run.
    members: Callable[[], Sequence[Member]]

    def all(self) -> list[tuple[OrderedHandler, bool]]:
        """All handlers that the app registers or that have lanes, by name.

        With each whether the app registers it: of another one only that is known which its lanes
        tell. Raises AngzarrError.
        """
        mine = self.registered()
        names = {one.task for one in mine}
        others = (one for one in self.stores().lanes.known() if one.handler not in names)
        found = [(one, True) for one in mine] + [(_by_lanes(one), False) for one in others]
        return sorted(found, key=lambda pair: pair[0].name)

    def workers(self, tasks: Iterable[str]) -> dict[str, int] | None:
        """The number of workers that run each of *tasks*; None: unknown."""
        try:
            members = self.members()
        except AngzarrError:
            return None
        return {task: sum(task in one.handlers for one in members) for task in tasks}


def _by_lanes(known: Known) -> OrderedHandler:
    """A handler that is not registered here: a projection, if it is called like one."""
    order = Order(
        domains=known.domains,
        types=frozenset(),
        first=known.first,
        moves=known.handler.startswith(_PROJECTION),
    )
    return OrderedHandler(known.handler, order)


_log = logging.getLogger(__name__)

#: How old what is shown may be at least: what was counted of lanes, and of event books.
LANES_FRESH: Final = timedelta(seconds=5)
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


class HandlerStatus(NamedTuple):
    """An ordered handler, and how it did."""

    row: HandlerRow
    #: False: the app of this process does not register it.
    is_registered: bool
    #: How many workers run it; None: not known.
    workers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSurvey:
    """What was counted last."""

    seen: tuple[HandlerStatus, ...] = ()
    #: When the lanes were counted; None: they were not yet. A lag says itself when it was.
    at: datetime | None = None
    #: Why there is nothing newer, if there is not.
    problem: Problem | None = None

    def find(self, name: str) -> HandlerStatus:
        """The one that is called *name*, or has it as task name; raises Problem."""
        for one in self.seen:
            if name in (one.row.one.name, one.row.one.task):
                return one
        raise self.problem or (uncounted() if self.at is None else not_found("ordered handler"))


def uncounted() -> Problem:
    """The problem that nothing is counted yet."""
    msg = "ordered handlers are being counted for the first time: ask again"
    return Problem(503, "busy", msg, headers={"Retry-After": "1"})


class Surveyor:
    """Counts when somebody looks and it is time; one thread at a time. Safe to use from threads."""

    def __init__(self, services: OrderedServices, clock: Clock, start: Start | None = None) -> None:
        self._services, self._clock, self._start = services, clock, start or _in_thread
        self._known = HandlerSurvey()
        self._due: datetime | None = None
        self._lag_due: datetime | None = None
        self._busy = threading.Lock()
        self._told = threading.Event()
        self._ending = False

    def look(self, patience: float = FIRST) -> HandlerSurvey:
        """The last survey; begins another count if it is time.

        Waits *patience* seconds for the first count.
        """
        if self._is_due() and self._busy.acquire(blocking=False):
            self._start(self._turn)
        if not self._told.is_set():
            self._told.wait(patience)
        return self._known

    def find(self, name: str) -> HandlerStatus:
        """The one that is called *name*, or has it as task name; raises Problem."""
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
            self._show(HandlerSurvey(seen=tuple(self._lanes()), at=began))
        self._due = self._rested(began, LANES_FRESH)
        if self._lag_due is None or self._lag_due <= began:
            with asking(BOOKS):
                self._lags()

    def _lanes(self) -> list[HandlerStatus]:
        lags = {one.row.one.task: one.row.lag for one in self._known.seen}
        found = self._services.all()
        workers = self._services.workers(one.task for one, _ in found)
        lanes, checkpoints = self._services.stores()
        rows = [row_of(one, lanes, checkpoints, lags.get(one.task)) for one, _ in found]
        return [
            HandlerStatus(row, is_mine, None if workers is None else workers[row.one.task])
            for row, (_, is_mine) in zip(rows, found, strict=True)
        ]

    def _lags(self) -> None:
        began = self._clock.now()
        store = self._services.books()
        for number, one in enumerate(self._known.seen):
            if self._ending:
                return
            lag = lag_of(
                one.row.one.task,
                one.row.one.order,
                store=store,
                lanes=self._services.stores().lanes,
                now=self._clock.now(),
            )
            self._show(replace(self._known, seen=_with(self._known.seen, number, lag)))
        self._lag_due = self._rested(began, LAG_FRESH)
        self._due = self._rested(began, LANES_FRESH)

    def _show(self, survey: HandlerSurvey) -> None:
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


def _with(seen: Sequence[HandlerStatus], number: int, lag: Lag) -> tuple[HandlerStatus, ...]:
    changed = seen[number]._replace(row=seen[number].row._replace(lag=lag))
    return (*seen[:number], changed, *seen[number + 1 :])


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="angzarr-survey", daemon=True).start()
