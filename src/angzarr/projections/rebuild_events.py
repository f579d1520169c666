"""Events of a rebuild: the scan of the event store, its pace, and their way into a shadow table.

A batch is one transaction. If an event in it fails or is skipped, the batch is taken apart: what is
before the event, the event, what is behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from typing import Final

from angzarr.aggregates.book import Address, EventStore, Head
from angzarr.clock import Clock
from angzarr.errors import RebuildError, Skip, text_of
from angzarr.events.event import Event
from angzarr.projections.shadow_table import Applied, Behind, Failure, Plan, ShadowTable
from angzarr.runtime.text import printable

#: Heads that are read at once; as many as a question for places may have.
_PAGE: Final = 1_000


def head_of(event: Event) -> Head:
    """The place of *event* in its book, which it has: it was read there."""
    assert event.domain is not None  # noqa: S101 - narrows
    assert event.root is not None  # noqa: S101 - narrows
    assert event.sequence is not None  # noqa: S101 - narrows
    return Head(Address(event.domain, event.root, event.edition or ""), event.sequence)


def head_after(event: Event) -> Head:
    """The place behind that of *event*."""
    address, sequence = head_of(event)
    return Head(address, sequence + 1)


def batches(
    store: EventStore, plan: Plan, start: Head | None, limit: int
) -> Generator[Sequence[Event]]:
    """Yield the events from *start* on; the next batch is read while one is in hand."""

    def read(place: Head | None) -> Sequence[Event]:
        return store.scan(plan.domains, place, limit)

    with ThreadPoolExecutor(1, "angzarr-rebuild") as ahead:
        waiting = ahead.submit(read, start)
        while events := waiting.result():
            waiting = ahead.submit(read, head_after(events[-1]))
            yield events


def heads(store: EventStore, plan: Plan) -> Iterator[Sequence[Head]]:
    """Yield where all books are, some at a time."""
    after: Address | None = None
    while page := store.heads(plan.domains, after, _PAGE):
        yield page
        after = page[-1].address


def events_in(store: EventStore, plan: Plan) -> int:
    """Count the events that a rebuild has before it."""
    return sum(
        max(head.next_sequence - plan.first, 0) for page in heads(store, plan) for head in page
    )


class Survey:
    """One pass through all books: which are further than their *places*, and how long they are."""

    def __init__(
        self,
        store: EventStore,
        plan: Plan,
        places: Callable[[Sequence[Address]], Mapping[Address, int]],
    ) -> None:
        self._pages = heads(store, plan)
        self._first = plan.first
        self._places = places
        #: Events in the books that were gone through.
        self.total = 0

    def __iter__(self) -> Iterator[Behind]:
        for page in self._pages:
            known = self._places([head.address for head in page])
            for address, end in page:
                self.total += max(end - self._first, 0)
                if (place := known.get(address, self._first)) < end:
                    yield Behind(address, place, end)


def missing(
    store: EventStore, plan: Plan, lacking: Iterable[Behind], limit: int
) -> Iterator[list[Event]]:
    """Yield the events that aggregates lack, as far as books have them, some *limit* at a time."""
    batch: list[Event] = []
    for one in lacking:
        for event in _of(store, plan, one, limit):
            batch.append(event)
            if len(batch) >= limit:
                yield batch
                batch = []
    if batch:
        yield batch


def _of(store: EventStore, plan: Plan, lacking: Behind, limit: int) -> Iterator[Event]:
    place = lacking.place

    def ours(event: Event) -> bool:
        address, sequence = head_of(event)
        return address == lacking.address and sequence < lacking.until

    while place < lacking.until:
        most = min(lacking.until - place, limit)
        found = list(takewhile(ours, store.scan(plan.domains, Head(lacking.address, place), most)))
        if not found:
            return
        yield from found
        place = head_after(found[-1]).next_sequence


class Pace:
    """Lets no more than *rate* events a second through; None: as many as there are.

    What was slow is not made up for: the database has its rest all the same.
    """

    def __init__(self, clock: Clock, rate: float | None) -> None:
        self._clock = clock
        self._rate = rate
        self._since = clock.now()

    def batch(self, most: int) -> int:
        """How many events to take at once: those of a second at most."""
        return most if self._rate is None else max(min(most, int(self._rate)), 1)

    def took(self, events: int) -> None:
        """Wait until *events* may have been taken since the last call."""
        if self._rate is None:
            return
        due = self._since + timedelta(seconds=events / self._rate)
        self._clock.sleep(due - self._clock.now())
        self._since = self._clock.now()


#: Characters of an error that are kept.
_LONGEST = 500


@dataclass(kw_only=True)
class Putting:
    """Puts events into *green*; *keep_going*: a failure only stops its own aggregate."""

    green: ShadowTable
    keep_going: bool = False
    #: The aggregates that stay where they are, and at which event.
    stuck: dict[Address, Failure] = field(default_factory=dict)
    #: Events that are in the space.
    events: int = 0

    def put(self, events: Sequence[Event], cursor: Head | None) -> None:
        """Put *events* there; the scan is at *cursor* then, or where it was with None.

        Raises RebuildError at an event that fails; what is before it is kept.
        """
        parts = [(events, cursor)]
        while parts:
            part, after = parts.pop()
            loose = [event for event in part if head_of(event).address not in self.stuck]
            answer = self.green.apply(loose, after)
            if isinstance(answer, Applied):
                self.events += answer.events
                continue
            at, error = answer.at, answer.error
            scans = cursor is not None
            if at:
                parts += [
                    (loose[at:], after),
                    (loose[:at], head_of(loose[at]) if scans else None),
                ]
                continue
            parts += [(loose[1:], after)]
            self._pass_by(loose[0], error, head_after(loose[0]) if scans else None)

    def forgive(self) -> None:
        """Try again all aggregates that stayed where they were."""
        self.green.forgive()
        self.stuck.clear()

    def standing(self) -> tuple[int, dict[Address, Failure]]:
        """How many events there are and who is stuck, for `back_to`."""
        return self.events, dict(self.stuck)

    def back_to(self, standing: tuple[int, dict[Address, Failure]], /) -> None:
        """Forget what was put since then, in a transaction that was undone."""
        self.events, self.stuck = standing

    def _pass_by(self, event: Event, error: Exception, after: Head | None) -> None:
        if isinstance(error, Skip):
            self.green.pass_by(event, after, None)
            self.events += 1
            return
        failure = failure_of(event, error)
        if not self.keep_going:
            raise RebuildError(failure_text(failure)) from error
        self.green.pass_by(event, after, failure)
        self.stuck[failure.address] = failure


def failure_of(event: Event, error: Exception) -> Failure:
    """The failure of *event*, which raised *error*."""
    address, sequence = head_of(event)
    # What a database says goes on with the statement, and with the data in it.
    said = text_of(getattr(error, "orig", None) or error).partition("\n")[0]
    shown = printable(f"{type(error).__name__}: {said}")[:_LONGEST]
    return Failure(address, sequence, event.id, event.type, shown)


def failure_text(failure: Failure) -> str:
    """The cause that stopped a rebuild, and the action to take, as one sentence."""
    address, sequence, event_id, event_type, error = failure
    return (
        f"the rebuild stopped at event {event_id} ({event_type}), sequence {sequence} of"
        f" {address}: {error}; everything before it is kept: fix the projection and run the"
        " rebuild again, or leave this aggregate as it is with --keep-going"
    )
