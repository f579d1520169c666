"""A green space in memory, for the course of a rebuild: what it holds is what was applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from angzarr.aggregates.book import Address, Head
from angzarr.events.event import Event
from angzarr.projections.rebuild_events import head_after, head_of
from angzarr.projections.shadow_table import (
    Abandoned,
    Ahead,
    Applied,
    Behind,
    Broken,
    Busy,
    Compared,
    Failure,
    Fill,
    Progress,
    ShadowTable,
    SwitchedOver,
)
from hand_clock import START


class MemoryGreen(ShadowTable):
    """Keeps sequences by aggregate; `work` is called for each event and may raise."""

    def __init__(self, work: Callable[[Event], object] = lambda _event: None) -> None:
        self.work = work
        self.held: dict[Address, list[int]] = {}
        self.following: dict[Address, int] = {}
        self.cursor: Head | None = None
        self.failures: dict[Address, Failure] = {}
        self.events = 0
        self.batches: list[int] = []
        self.resumed = False
        self.over = False
        #: What `switch_over` and `compare` say before they do anything.
        self.answers: list[Busy | Ahead] = []
        #: What the live lanes have while nobody writes.
        self.live: list[Behind] = []

    def begin(self, *, verifies: bool = False) -> Progress:
        resumed, self.resumed = self.resumed, True
        if not resumed:
            self.verifies, self.spoiled = verifies, False
        found = Progress(START, resumed, self.cursor, self.events, tuple(self.failures.values()))
        return found._replace(verifies=self.verifies, spoiled=self.spoiled)

    def clear(self, books: Iterable[Sequence[Head]], /, *, force: bool) -> None:
        pass

    def apply(self, events: Sequence[Event], cursor: Head | None, /) -> Applied | Broken:
        following, fresh = dict(self.following), []
        for at, event in enumerate(events):
            address, sequence = head_of(event)
            if sequence < following.get(address, 0):
                continue
            try:
                self.work(event)
            except Exception as error:
                return Broken(at, error)
            fresh.append(event)
            following[address] = sequence + 1
        for event in fresh:
            address, sequence = head_of(event)
            self.held.setdefault(address, []).append(sequence)
        self.following, self.cursor = following, cursor or self.cursor
        self.events += len(fresh)
        self.batches.append(len(events))
        return Applied(len(fresh))

    def spoil(self) -> None:
        self.spoiled = True

    def pass_by(self, event: Event, cursor: Head | None, failure: Failure | None, /) -> None:
        self.cursor = cursor or self.cursor
        if failure is not None:
            self.failures[failure.address] = failure
            return
        address, following = head_after(event)
        self.following[address] = following
        self.events += 1

    def forgive(self) -> None:
        self.failures.clear()

    def places(self, addresses: Sequence[Address], /) -> dict[Address, int]:
        return {one: self.following[one] for one in addresses if one in self.following}

    def switch_over(self, fill: Fill, /, *, force: bool) -> SwitchedOver | Busy:
        if self.answers:
            return self.answers.pop(0)
        fill(self.live)
        self.over = True
        return SwitchedOver(self.events, tuple(self.failures.values()))

    def compare(self, fill: Fill, /) -> Compared | Ahead | Busy:
        if self.answers:
            return self.answers.pop(0)
        fill(self.live)
        return Compared({}, self.events)

    def abandon(self) -> Abandoned | None:
        resumed, self.resumed = self.resumed, False
        self.held, self.following, self.cursor, self.events = {}, {}, None, 0
        self.failures.clear()
        return Abandoned(whole=True) if resumed else None

    def close(self) -> None:
        pass
