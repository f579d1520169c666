"""Choosing: many entries by a filter, and what a person does to all of them (spec A5)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.analysis.verb import Act, Verb, leaves, refusal

#: Entries changed in one transaction.
_BATCH: Final = 100
CHANGED: Final = "the entry was changed meanwhile"


def choose(
    ledger: Ledger,
    wanted: EntryFilter,
    status: Status | None,
    fits: Callable[[Entry], bool],
    limit: int,
) -> list[Entry]:
    """Return up to *limit* entries that the filter finds and that fit, those that failed last."""
    found = in_status(ledger, wanted, status)
    return list(islice((entry for entry in found if fits(entry)), limit))


def mark_of(entry_ids: Iterable[str]) -> str:
    """Return a digest that is the same for the same entries, in whatever order."""
    return hashlib.sha256("\n".join(sorted(entry_ids)).encode()).hexdigest()


def in_statuses(
    ledger: Ledger, wanted: EntryFilter, statuses: Collection[Status]
) -> Iterator[Entry]:
    """Return the entries of a filter in any of *statuses*, those that failed last first.

    Each status is asked for by itself: entries in others are not read, however many there are.
    """
    found = [in_status(ledger, wanted, status) for status in sorted(statuses)]
    return heapq.merge(*found, key=lambda entry: (entry.last_failed_at, entry.id), reverse=True)


def in_status(ledger: Ledger, wanted: EntryFilter, status: Status | None) -> Iterator[Entry]:
    """Return the entries of a filter in *status* (None: any), page by page."""
    after = ""
    while True:
        page = ledger.get_failed_events(wanted, status=status, limit=LONGEST_PAGE, after=after)
        yield from page.entries
        if not (after := page.next):
            return


def choose_for(
    ledger: Ledger, wanted: EntryFilter, status: Status | None, verb: Verb, limit: int
) -> list[Entry]:
    """Return up to *limit* entries of the filter that *verb* applies to, those that failed last."""
    statuses = leaves(verb) if status is None else leaves(verb) & {status}
    return list(islice(in_statuses(ledger, wanted, statuses), limit))


def act_on_all(
    ledger: Ledger, verb: Verb, entries: Sequence[Entry], *, note: str = "", by: str
) -> list[tuple[Entry, str]]:
    """Do *verb* to *entries* as they were seen; return why not, or nothing, for each.

    In batches: a crash leaves some of them done, and doing it again is harmless.
    """
    results: list[tuple[Entry, str]] = []
    for first in range(0, len(entries), _BATCH):
        planned = [(entry, refusal(entry, verb)) for entry in entries[first : first + _BATCH]]
        acts = [
            Act(entry_id=entry.id, revision=entry.revision, verb=verb, note=note)
            for entry, problem in planned
            if not problem
        ]
        made = iter(ledger.act(acts, by=by))
        results += [
            (entry, problem or ("" if next(made) else CHANGED)) for entry, problem in planned
        ]
    return results
