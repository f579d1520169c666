"""Choosing: many entries by a filter, and what a person does to all of them (spec A5)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry, HistoryLine, Status
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.analysis.ledger.operator_actions import Act, Verb, asks_for_skip, leaves, refusal
from angzarr.analysis.replay.skip import PlannedSkip, Skips
from angzarr.dead_letters.letter import Refusal

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
    """Up to *limit* entries that the filter finds and that fit, those that failed last."""
    found = in_status(ledger, wanted, status)
    return list(islice((entry for entry in found if fits(entry)), limit))


def mark_of(entry_ids: Iterable[str]) -> str:
    """A digest that is the same for the same entries, in whatever order."""
    return hashlib.sha256("\n".join(sorted(entry_ids)).encode()).hexdigest()


def in_statuses(
    ledger: Ledger, wanted: EntryFilter, statuses: Collection[Status]
) -> Iterator[Entry]:
    """The entries of a filter in any of *statuses*, those that failed last first.

    Each status is asked for by itself: entries in others are not read, however many there are.
    """
    found = [in_status(ledger, wanted, status) for status in sorted(statuses)]
    return heapq.merge(*found, key=lambda entry: (entry.last_failed_at, entry.id), reverse=True)


def in_status(ledger: Ledger, wanted: EntryFilter, status: Status | None) -> Iterator[Entry]:
    """The entries of a filter in *status* (None: any), page by page."""
    after = ""
    while True:
        page = ledger.get_failed_events(wanted, status=status, limit=LONGEST_PAGE, after=after)
        yield from page.entries
        if not (after := page.next):
            return


def choose_for(
    ledger: Ledger, wanted: EntryFilter, status: Status | None, verb: Verb, limit: int
) -> list[Entry]:
    """Up to *limit* entries of the filter that *verb* applies to, those that failed last."""
    statuses = leaves(verb) if status is None else leaves(verb) & {status}
    return list(islice(in_statuses(ledger, wanted, statuses), limit))


class Acted(NamedTuple):
    """The result for one entry: done without a `problem`, or `begun` and finishes by itself."""

    entry: Entry
    problem: str = ""
    begun: bool = False


def act_on_all(
    skips: Skips, verb: Verb, entries: Sequence[Entry], *, note: str = "", by: str
) -> list[Acted]:
    """Do *verb* to *entries* as they were seen; return what became of each, in order.

    Where later events wait behind one, a skip follows that lets them go on. In batches: a crash
    leaves some of them done, and doing it again is harmless.
    """
    results: list[Acted] = []
    for first in range(0, len(entries), _BATCH):
        some = entries[first : first + _BATCH]
        results += _act_on_some(skips, verb, some, note, by)
    return results


def would_act(skips: Skips, verb: Verb, entries: Sequence[Entry]) -> list[Acted]:
    """The outcome that each of *entries* would have, in order; changes nothing."""
    problems = _problems(skips, verb, entries)[0]
    return [Acted(one, problems[one.id]) for one in entries]


def _act_on_some(
    skips: Skips, verb: Verb, entries: Sequence[Entry], note: str, by: str
) -> list[Acted]:
    problems, made = _problems(skips, verb, entries)
    planned = [one for one in entries if not problems[one.id]]
    acts = [
        Act(entry_id=one.id, revision=one.revision, verb=verb, note=note, skips=one.id in made)
        for one in planned
    ]
    done = zip(planned, skips.ledger.act(acts, by=by), strict=True)
    problems |= {one.id: "" if changed else CHANGED for one, changed in done}
    passing = [one for one in made.values() if not problems[one.entry.id]]
    line = HistoryLine(at=skips.replayer.clock.now(), who=by, what=verb.value, detail=note)
    left = skips.send_all(passing, line)
    return [Acted(one, problems[one.id], one.id in left) for one in entries]


def _problems(
    skips: Skips, verb: Verb, entries: Sequence[Entry]
) -> tuple[dict[str, str], dict[str, PlannedSkip]]:
    """By id, why *verb* does not apply to entries, or nothing, and their skips."""
    made = skips.made_for([one for one in entries if _skips(one, verb)])
    problems = {one.id: refusal(one, verb) for one in entries}
    problems |= {name: why for name, why in made.items() if isinstance(why, Refusal)}
    return problems, {name: one for name, one in made.items() if isinstance(one, PlannedSkip)}


def _skips(entry: Entry, verb: Verb) -> bool:
    return not refusal(entry, verb) and asks_for_skip(entry, verb)
