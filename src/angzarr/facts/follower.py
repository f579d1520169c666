"""Follows facts as they arrive: each once, also those that a slow transaction makes visible late.

A database numbers facts when they are written and shows them when their transaction ends: a fact
may appear before another one of a lower number. So each look begins a little before the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from angzarr.clock import Clock
from angzarr.facts.fact import Fact
from angzarr.facts.query import EVERY, LONGEST_PAGE, FactOrder, FactPage, FactQuery, FactReader

#: How long a transaction that writes facts may take and still be followed: a statement has 5 s.
SETTLES: Final = timedelta(seconds=10)


class FactFollower:
    """The facts of *wanted* that arrive from now on; its verbs raise Unavailable."""

    def __init__(self, reader: FactReader, wanted: FactQuery, clock: Clock) -> None:
        self._reader = reader
        self._wanted = wanted
        self._clock = clock
        #: What was there before, or was given, by id: the number in the store.
        self._seen: dict[str, int] = {}
        #: When it looked, and behind which cursor all was seen then.
        self._looks = deque([(clock.now(), self._begin())])

    def before(self, count: int) -> list[Fact]:
        """The last *count* facts until now, in the order of their arrival; call it first."""
        if not count:
            return []
        page = self._reader.find(self._wanted, order=FactOrder.LATEST_ARRIVAL, limit=count)
        self._note(page)
        return list(reversed(page.facts))

    def look(self) -> Iterator[list[Fact]]:
        """The facts that arrived since the last look, some at a time, in the order of arrival.

        Those that were taken and followed by others, or by the end, are not given again. Where the
        look breaks off, the next one gives the rest.
        """
        now, end, after = self._clock.now(), self._end(), self._looks[0][1]
        while True:
            page = self._reader.find(
                self._wanted, order=FactOrder.ARRIVAL, limit=LONGEST_PAGE, after=after
            )
            if new := [fact for fact in page.facts if fact.id not in self._seen]:
                yield new
            self._note(page)
            if not page.more:
                break
            after = page.next
        self._looks.append((now, end))
        self._forget(now)

    def _begin(self) -> str:
        """The cursor behind which the first look begins; what is there already is not given."""
        last = self._reader.find(EVERY, order=FactOrder.LATEST_ARRIVAL, limit=LONGEST_PAGE)
        self._note(last)
        return last.next

    def _end(self) -> str:
        """The cursor of the fact that arrived last, whichever it is; empty: there are none."""
        last = self._reader.find(EVERY, order=FactOrder.LATEST_ARRIVAL, limit=1)
        return str(last.cursors[0]) if last.cursors else ""

    def _note(self, page: FactPage) -> None:
        numbers = (cursor.position for cursor in page.cursors)
        self._seen |= dict(zip((one.id for one in page.facts), numbers, strict=True))

    def _forget(self, now: datetime) -> None:
        """Begin further on, once what was written until there is settled."""
        while len(self._looks) > 1 and now - self._looks[1][0] >= SETTLES:
            self._looks.popleft()
        behind = self._looks[0][1]
        least = int(behind.rpartition("~")[2]) if behind else 0
        self._seen = {id_: number for id_, number in self._seen.items() if number > least}
