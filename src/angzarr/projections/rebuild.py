"""Rebuild: a read model made anew from the event store, and put in the place of the live one (P4).

plan → scan from the beginning → catch up with what came meanwhile → switch over. Live events go on
being handled on the live tables. If a run ends early, the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from angzarr.aggregates.book import EventStore
from angzarr.clock import Clock
from angzarr.errors import RebuildError, StoreUnavailable
from angzarr.projections.rebuild_events import (
    Pace,
    Putting,
    Survey,
    batches,
    events_in,
    head_after,
    heads,
    missing,
)
from angzarr.projections.shadow_table import (
    Ahead,
    Behind,
    Busy,
    Compared,
    Plan,
    Progress,
    ShadowTable,
    SwitchedOver,
    TransactionEnded,
)

#: Events of one transaction.
BATCH: Final = 1_000
#: Passes in a row that find no fewer events than the one before: live ones come too fast.
_PASSES: Final = 5
#: Attempts to stop other writers, and the pause after each that failed.
_TRIES: Final = 30
_PAUSE: Final = timedelta(seconds=1)


class RebuildStanding(NamedTuple):
    """How far a rebuild is. `total` is what was in the store when it was counted last."""

    done: int
    total: int
    failed: int


class RebuildStopped(NamedTuple):
    """A person asked it to stop; finished work is `kept`, but for a comparison's."""

    events: int
    kept: bool = True


Ending: TypeAlias = SwitchedOver | Compared | RebuildStopped


class _Stop(Exception):
    """Ends a run from wherever it is."""


@dataclass(kw_only=True)
class Rebuild:
    """One run of a rebuild; it closes nothing."""

    plan: Plan
    store: EventStore
    green: ShadowTable
    clock: Clock
    batch: int = BATCH
    #: Events a second; None: as fast as it goes.
    throttle: float | None = None
    #: So many events may be left to the switch-over, while others cannot write: about a second.
    little: int = 1_000
    keep_going: bool = False
    #: Whether effects of events that no book has may be given up.
    force: bool = False
    stop: Callable[[], bool] = lambda: False
    begun: Callable[[Progress], object] = lambda _progress: None
    tell: Callable[[RebuildStanding], object] = lambda _standing: None

    def __post_init__(self) -> None:
        self._pace = Pace(self.clock, self.throttle)
        self._putting = Putting(green=self.green, keep_going=self.keep_going)
        self._total = 0

    def run(self) -> SwitchedOver | RebuildStopped:
        """Rebuild and switch over; raises RebuildError, StoreUnavailable with all kept so far."""
        try:
            self._make(self._begun(verifies=False), force=self.force)
            return self._switch_over()
        except _Stop:
            return RebuildStopped(self._putting.events)
        except TransactionEnded as ended:
            try:
                self.green.spoil()
            except StoreUnavailable as away:
                raise TransactionEnded(_unnoted(ended, away)) from ended
            raise

    def verify(self) -> Compared | RebuildStopped:
        """Rebuild and compare with the live read model, which stays; raises as `run` does.

        The space goes, however that ends: a later run may have other code, and must not compare or
        keep these rows. Raises RebuildError, too, where a rebuild waits to be gone on with.
        """
        progress = self._begun(verifies=True)
        try:
            self._make(progress, force=True)  # no effect is given up by it
            return self._compare()
        except _Stop:
            return RebuildStopped(self._putting.events, kept=False)
        finally:
            with suppress(StoreUnavailable):  # else the next run removes it
                self.green.abandon()

    def _begun(self, *, verifies: bool) -> Progress:
        """Begin, anew if what is there is for a comparison or spoiled."""
        progress = self.green.begin(verifies=verifies)
        if progress.resumed and (progress.verifies or progress.spoiled):
            self.green.abandon()
            return self.green.begin(verifies=verifies)
        if progress.resumed and verifies:
            raise RebuildError(_in_the_way(self.plan))
        return progress

    def _make(self, progress: Progress, *, force: bool) -> None:
        self._putting.events = progress.events
        self._putting.stuck = {failure.address: failure for failure in progress.failures}
        self.begun(progress)
        self._total = events_in(self.store, self.plan)
        self._tell()
        self._clear(progress, force=force)
        self._scan(progress)
        if progress.failures:
            self._putting.forgive()
        self._catch_up()

    def _clear(self, progress: Progress, *, force: bool) -> None:
        """Let the space begin empty; where that is refused nothing is left of one just made."""
        try:
            self.green.clear(heads(self.store, self.plan), force=force)
        except RebuildError:
            if not progress.resumed:
                with suppress(StoreUnavailable):  # what is there is empty
                    self.green.abandon()
            raise

    def _scan(self, progress: Progress) -> None:
        limit = self._pace.batch(self.batch)
        self._check()
        with closing(batches(self.store, self.plan, progress.cursor, limit)) as found:
            for events in found:
                self._putting.put(events, head_after(events[-1]))
                self._after(len(events))

    def _catch_up(self) -> None:
        """Go through all books until hardly anything is missing."""
        least, in_vain = None, 0
        limit = self._pace.batch(self.batch)
        while (found := self._pass(limit)) > self.little:
            in_vain = in_vain + 1 if least is not None and found >= least else 0
            least = found if least is None else min(found, least)
            if in_vain >= _PASSES:
                msg = (
                    f"live events come as fast as they are rebuilt: {found:,} came during the last"
                    " pass; let the rebuild go faster (--throttle), or run it while fewer come:"
                    " it goes on from here"
                )
                raise RebuildError(msg)

    def _pass(self, limit: int) -> int:
        found, survey = 0, Survey(self.store, self.plan, self.green.places)
        lacking = (one for one in survey if one.address not in self._putting.stuck)
        for events in missing(self.store, self.plan, lacking, limit):
            self._putting.put(events, None)
            found += len(events)
            self._after(len(events))
        self._total = survey.total
        return found

    def _switch_over(self) -> SwitchedOver:
        why = ""
        for _ in range(_TRIES):
            self._check()
            before = self._putting.standing()
            answer = self.green.switch_over(self._fill, force=self.force)
            if isinstance(answer, SwitchedOver):
                return answer
            self._putting.back_to(before)
            why = answer.why
            self.clock.sleep(_PAUSE)
            self._catch_up()
        raise RebuildError(_locked_out(why))

    def _compare(self) -> Compared:
        why = ""
        for _ in range(_TRIES):
            self._check()
            before = self._putting.standing()
            answer = self.green.compare(self._fill)
            if isinstance(answer, Compared):
                return answer
            if isinstance(answer, Busy):
                self._putting.back_to(before)
            if isinstance(answer, Ahead) and answer.blocked:
                raise RebuildError(_stands(answer))
            why = answer.why if isinstance(answer, Busy) else _lags(answer)
            self.clock.sleep(_PAUSE)
        raise RebuildError(why if isinstance(answer, Ahead) else _locked_out(why))

    def _fill(self, lacking: Sequence[Behind]) -> None:
        for events in missing(self.store, self.plan, lacking, self.batch):
            self._putting.put(events, None)

    def _after(self, events: int) -> None:
        self._tell()
        self._check()
        self._pace.took(events)

    def _check(self) -> None:
        if self.stop():
            raise _Stop

    def _tell(self) -> None:
        done = self._putting.events
        self.tell(RebuildStanding(done, max(self._total, done), len(self._putting.stuck)))


def _in_the_way(plan: Plan) -> str:
    return (
        f"a rebuild of {plan.projection} was begun and has not ended: go on with it (without"
        " --verify), or remove what it has made (--abandon), before you compare"
    )


def _unnoted(ended: TransactionEnded, away: StoreUnavailable) -> str:
    return f"{ended}; but that could not be noted, so remove what it has made (--abandon): {away}"


def _locked_out(why: str) -> str:
    return (
        f"others kept writing to the read model, so it could not be switched over ({why}): end"
        " what holds its tables for long, and run the rebuild again; it goes on from here"
    )


def _lags(ahead: Ahead) -> str:
    return (
        f"the live read model is {ahead.events:,} events behind the event store, so there is"
        " nothing to compare yet: let the workers catch up, and run it again"
    )


def _stands(ahead: Ahead) -> str:
    named = ", ".join(f"{head.address} at {head.next_sequence}" for head in ahead.blocked)
    return (
        f"dead letters hold up aggregates of the live read model ({named}), so it cannot be"
        " compared with all events: replay these letters or skip them, and run it again"
    )
