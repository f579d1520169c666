"""A rebuild in place: the live read model is emptied and filled again, while readers see it grow.

For read models that are not tables of this database. Its places are the live lanes themselves, so
that live events go on in every aggregate that has come up to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine

from angzarr.adapters.sql import green_lanes, green_progress
from angzarr.adapters.sql.green import SqlGreen, Work
from angzarr.adapters.sql.lane_gate import pause
from angzarr.adapters.sql.lane_resetting import reset
from angzarr.aggregates.book import Address
from angzarr.aggregates.event_store import Head
from angzarr.clock import Clock
from angzarr.errors import RebuildError
from angzarr.events.event import Event
from angzarr.projections.green import Busy, Compared, Failure, Fill, Plan, SwitchedOver


class InPlace(SqlGreen):
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

    def clear(self, books: Iterable[Sequence[Head]], /, *, force: bool) -> None:
        """Empty the read model, and let the lanes and the checkpoint begin anew.

        Only once that is committed it is noted as done, for on SQLite the note is in another file.
        """
        with self._transaction() as connection:
            if green_progress.emptied(connection):
                return
            if not force:
                self.check_known(books)
            green_progress.note_emptied(connection, done=False)
        with self._transaction() as connection:
            self._empty(connection)
            reset(connection, self.plan.handler)
        with self._transaction() as connection:
            green_progress.note_emptied(connection, done=True)

    def enter_batch(self) -> None:
        """Let no live run go on amid a batch: it would be at the same lanes."""
        pause(self.space.connection, self.plan.handler)

    def where(self, addresses: Iterable[Address]) -> dict[Address, int]:
        """Return where the live lanes are."""
        return self.live_places(addresses)

    def stay(self, failure: Failure) -> None:
        """Leave the live lane where it is: the event is next there, if nobody has passed it."""

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
