"""Choosing: many entries by a filter, and what a person does to all of them (spec A5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.analysis.verb import Act, Verb, refusal

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
    """Return up to *limit* entries that the filter finds and that fit, over all pages."""
    found: list[Entry] = []
    after = ""
    while len(found) < limit:
        page = ledger.get_failed_events(wanted, status=status, limit=LONGEST_PAGE, after=after)
        found += (entry for entry in page.entries if fits(entry))
        after = page.next
        if not after:
            break
    return found[:limit]


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
