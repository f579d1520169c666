"""Question: what a confirmation asks about, so that nothing else is done when it is answered."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.bulk_actions import choose_for, mark_of
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.many import Result, most_for, obstacle


class About(NamedTuple):
    """Of which entries is asked, and what is to be done to them."""

    wanted: EntryFilter
    status: Status | None
    verb: Verb
    #: That many at most, those that failed last.
    limit: int


class Question(NamedTuple):
    """The entries of which a person is asked; none of them failed at `until` or later."""

    until: datetime
    #: Those that the verb applies to, and why it would not be done to them, or nothing.
    found: tuple[tuple[Entry, str], ...]
    #: They are as many as are done at once: there may be more.
    is_full: bool

    @property
    def entries(self) -> tuple[Entry, ...]:
        """To these it would be done."""
        return tuple(entry for entry, why in self.found if not why)

    @property
    def refused(self) -> tuple[Result, ...]:
        """To these the verb applies, and still it would not be done."""
        return tuple(Result(entry.id, why) for entry, why in self.found if why)

    @property
    def mark(self) -> str:
        """The same for the same entries, in whatever state they are."""
        return mark_of(entry.id for entry in self.entries)


def moment_of(desk: Desk, wanted: EntryFilter, status: Status | None = None) -> datetime:
    """Return the moment just behind now, and behind all that the filter finds by now.

    A worker's clock may be ahead (`transition.SKEW`), and so is what its entries say of their time.
    """
    newest = desk.ledger.get_failed_events(wanted, status=status, limit=1).entries
    return max([desk.clock.now(), *(one.last_failed_at for one in newest)]) + timedelta.resolution


def question_of(desk: Desk, about: About, until: datetime) -> Question:
    """Return what is asked *about* the entries that failed before *until*; changes nothing."""
    ends = min(until, about.wanted.until or until)
    most = most_for(about.verb, about.limit)
    found = choose_for(
        desk.ledger, replace(about.wanted, until=ends), about.status, about.verb, most
    )
    told = tuple((entry, obstacle(desk, entry, about.verb)) for entry in found)
    return Question(until=ends, found=told, is_full=len(found) == most)
