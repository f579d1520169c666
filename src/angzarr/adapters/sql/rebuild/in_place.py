"""A rebuild in place: the live read model is emptied and filled again, while readers see it grow.

For read models that are not tables of this database. Its places are the live lanes themselves, so
that live events go on in every aggregate that has come up to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql.engine.error_hints import is_busy
from angzarr.adapters.sql.ordering.runs import pause
from angzarr.adapters.sql.ordering.waiting_events import reset
from angzarr.adapters.sql.rebuild import progress as green_progress
from angzarr.adapters.sql.rebuild import store as green_lanes
from angzarr.adapters.sql.rebuild.shadow import SqlShadowTables, Work
from angzarr.aggregates.book import Address, Head
from angzarr.clock import Clock
from angzarr.errors import RebuildError, StoreUnavailable
from angzarr.events.event import Event
from angzarr.projections.shadow_table import (
    Abandoned,
    Applied,
    Broken,
    Busy,
    Compared,
    Failure,
    Fill,
    Plan,
    SwitchedOver,
)
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.projections")

#: Attempts to get in between live runs. Each waits for some seconds on its own.
_TRIES: Final = 60
_PAUSE: Final = timedelta(milliseconds=100)

_Answer = TypeVar("_Answer")


class RebuildInPlace(SqlShadowTables):
    """A space without tables: it only keeps that the rebuild was begun, and how far it is."""

    live = True

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        work: Work,
        clock: Clock,
        empty: Callable[[Any], object],
    ) -> None:
        """*empty* empties the read model, by a connection or whatever it goes by."""
        super().__init__(engine, replace(plan, tables=()), work, clock)
        self._empty = empty
        self._seldom = LogThrottle()

    def clear(self, books: Iterable[Sequence[Head]], /, *, force: bool) -> None:
        """Empty the read model, and let the lanes and the checkpoint begin anew.

        Only once that is committed it is noted as done, for on SQLite the note is in another file.
        """
        if self._tried(self._is_cleared):
            return
        super().clear(books, force=force)
        self._tried(partial(self._note_cleared, done=False))
        self._tried(self._clear)
        self._tried(partial(self._note_cleared, done=True))

    def _is_cleared(self) -> bool:
        with self._transaction() as connection:
            return bool(green_progress.emptied(connection))

    def _clear(self) -> None:
        with self._transaction() as connection:
            self.space.outlive_crashes()
            self._empty(connection)
            reset(connection, self.plan.handler)

    def _note_cleared(self, *, done: bool) -> None:
        with self._transaction() as connection:
            self.space.outlive_crashes()
            green_progress.note_emptied(connection, done=done)

    def apply(self, events: Sequence[Event], cursor: Head | None, /) -> Applied | Broken:
        """Handle *events*, however long live runs keep the batch waiting."""
        return self._tried(partial(super().apply, events, cursor))

    def spoil(self) -> None:
        """Note it beside live runs; on SQLite they keep it waiting."""
        self._tried(super().spoil)

    def pass_by(self, event: Event, cursor: Head | None, failure: Failure | None, /) -> None:
        """Note what became of *event*, however long live runs keep it waiting."""
        self._tried(partial(super().pass_by, event, cursor, failure))

    def forgive(self) -> None:
        """Forget all failures, however long live runs keep it waiting."""
        self._tried(super().forgive)

    def places(self, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The places of the live lanes, however long live runs keep it waiting."""
        return self._tried(partial(super().places, addresses))

    def abandon(self) -> Abandoned | None:
        """Remove the space, however long live runs keep it waiting."""
        return self._tried(super().abandon)

    def _tried(self, step: Callable[[], _Answer]) -> _Answer:
        """*step*'s answer; each try waits by itself while another transaction is in the way.

        Raises StoreUnavailable where that does not end: the rebuild goes on from here.
        """
        for left in range(_TRIES, 0, -1):
            try:
                return step()
            except StoreUnavailable as away:
                if left == 1 or not is_busy(away.__cause__ or away):
                    raise
                if self._seldom.now():
                    _log.warning(
                        "rebuild_waits: a run of %s takes long: %s", self.plan.projection, away
                    )
            self.clock.sleep(_PAUSE)
        raise AssertionError(_TRIES)  # pragma: no cover - the last try has returned or raised

    def enter_batch(self) -> None:
        """Let no live run go on amid a batch: it would be at the same lanes."""
        pause(self.space.connection, self.plan.handler)

    def where(self, addresses: Iterable[Address]) -> dict[Address, int]:
        """The places of the live lanes."""
        return green_lanes.live_places(self.space.connection, self.plan, addresses)

    def stay(self, failure: Failure) -> None:
        """Leave the live lane where it is: the event is next there, unless a person skipped it."""

    def note(
        self, events: Sequence[Event], following: Mapping[Address, int], cursor: Head | None
    ) -> None:
        """Move the live lanes and count in the live checkpoint."""
        connection, now = self.space.connection, self.clock.now()
        green_lanes.move_lanes(connection, self.plan, following, now)
        green_lanes.count(connection, self.plan, events, now)
        green_progress.note(connection, events, cursor)

    def switch_over(self, fill: Fill, /, *, force: bool) -> SwitchedOver | Busy:  # noqa: ARG002 - the port's
        """End: hand out what was parked meanwhile, and forget how far the rebuild was."""

        def step(connection: Connection) -> SwitchedOver:
            _, done = green_progress.progress_of(connection, resumed=True)
            green_lanes.settle_waiting(connection, self.plan)
            self.space.remove()
            return SwitchedOver(done.events, done.failures)

        answer = self.alone(step)
        if isinstance(answer, SwitchedOver):
            self.space.removed()
        return answer

    def compare(self, fill: Fill, /) -> Compared:  # noqa: ARG002 - the port's
        """Refuse: there is one read model only."""
        msg = "a rebuild in place has nothing to compare with: leave --in-place out"
        raise RebuildError(msg)
