"""FilingPlan: what becomes of failures that are filed and decided together. Pure.

A ledger looks up what it knows of them, has this planned, and writes the plan in one transaction:
each entry once, however much happened to it on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import Change, Entry, HistoryLine, Status
from angzarr.analysis.ledger.failure import Failure, entry_id_of, replay_of, replayed_letter_of
from angzarr.analysis.ledger.transition import EntryDecision


class Undecided(NamedTuple):
    """A failure that needs a decision."""

    entry: Entry
    failure: Failure
    #: The entry as the ledger has it; None: it does not know it yet.
    stored: Entry | None


def as_stored(entry: Entry, failure: Failure) -> Undecided:
    """The open decision about an *entry* that the ledger has like this."""
    return Undecided(entry, failure, stored=entry)


#: Decides about failures, in order, while they are filed: the ledger does not have them yet.
#: An answer that is too short leaves the rest undecided.
Decider: TypeAlias = Callable[[Sequence[Undecided]], Sequence[EntryDecision]]


def letter_ids_of(failures: Iterable[Failure]) -> set[str]:
    """The letters whose entries must be known before *failures* are filed."""
    ids = set[str]()
    for failure in failures:
        ids.add(failure.id)
        if linked := replayed_letter_of(failure):
            ids.add(linked)
    return ids


@dataclass(slots=True, kw_only=True)
class FilingPlan:
    """The entries of one transaction's failures, and its pending writes."""

    now: datetime
    #: By letter id: (replay, entry id) of each time it was filed.
    letters: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    #: By id: the entries that failures belong to, as they will be.
    entries: dict[str, Entry] = field(default_factory=dict)
    #: What histories say of it, by entry id, in order.
    lines: list[tuple[str, HistoryLine]] = field(default_factory=list)
    #: Changes that are acts, of rules.
    acts: list[Change] = field(default_factory=list)
    #: By entry id: what the entry is to keep.
    kept: dict[str, Failure] = field(default_factory=dict)
    #: Those that no entry is to keep, with the id of the entry that counted each.
    passed_over: list[tuple[str, Failure]] = field(default_factory=list)
    _stored: Mapping[str, Entry] = field(default_factory=dict)
    #: The id that each failure has by itself, by what it is in memory: hashing takes a while.
    _own_ids: dict[int, str] = field(default_factory=dict)
    _failing: set[str] = field(default_factory=set)

    def ids_for(self, failures: Iterable[Failure]) -> set[str]:
        """The ids of all entries that *failures* may belong to."""
        ids = {entry_id for places in self.letters.values() for _, entry_id in places}
        ids.update(map(self._own_id, failures))
        return ids

    def know(self, entries: Mapping[str, Entry]) -> None:
        """Begin with *entries*, as the ledger has them."""
        self._stored = entries
        self.entries = dict(entries)

    def file(
        self, failures: Sequence[Failure], decide: Decider | None = None, by: str = ""
    ) -> list[Entry]:
        """Plan the filing of *failures* in order, and what *decide* says of those that fail."""
        ids = [self._add(failure, self._own_id(failure)) for failure in failures]
        if decide is not None:
            self._decide(dict(zip(ids, failures, strict=True)), decide, by)
        return [self.entries[entry_id] for entry_id in ids]

    def steps(self) -> list[CountStep]:
        """The step of each entry that changes; the new ones first, by id."""
        new = sorted(self.entries.keys() - self._stored.keys())
        changed = (one.id for one in self._stored.values() if self.entries[one.id] is not one)
        return [
            CountStep(self._stored.get(one), self.entries[one], fails=one in self._failing)
            for one in (*new, *changed)
        ]

    def replaced(self) -> list[str]:
        """The ids of entries that are to keep another letter than they have."""
        return sorted(self.kept.keys() & self._stored.keys())

    def _add(self, failure: Failure, own_id: str) -> str:
        known, replay = self._entry_of(failure, own_id), replay_of(failure)
        if known is None:
            change = transition.filed(failure, self.now, own_id)
        elif (replay, known.id) in self.letters.get(failure.id, ()):
            if not (transition.is_given_on(known) and transition.holds(known, failure)):
                # A worker that died behind it may have made another letter of the same failure.
                self.passed_over.append((known.id, failure))
                return known.id
            # Its app shares this ledger and has it now, or it was not given on after all.
            change = transition.come_back(known, self.now)
        else:
            change = transition.failed_again(known, failure, self.now)
        entry = change.entry
        self.letters.setdefault(failure.id, set()).add((replay, entry.id))
        self._take(change)
        if not transition.holds(entry, failure):
            self.passed_over.append((entry.id, failure))
        else:
            if (before := self.kept.get(entry.id)) is not None:
                self.passed_over.append((entry.id, before))
            self.kept[entry.id] = failure
            if entry.status is Status.FAILED:
                self._failing.add(entry.id)
        return entry.id

    def _entry_of(self, failure: Failure, own_id: str) -> Entry | None:
        if linked := replayed_letter_of(failure):
            for _, entry_id in self.letters.get(linked, ()):
                entry = self.entries.get(entry_id)  # it may have been removed just now
                if entry is not None and transition.continues(entry, failure):
                    return entry
        return self.entries.get(own_id)

    def _own_id(self, failure: Failure) -> str:
        if (known := self._own_ids.get(id(failure))) is None:
            known = self._own_ids[id(failure)] = entry_id_of(failure)
        return known

    def _decide(self, failures: Mapping[str, Failure], decide: Decider, by: str) -> None:
        undecided = [
            Undecided(entry, self.kept.get(entry_id, failure), self._stored.get(entry_id))
            for entry_id, failure in failures.items()
            if (entry := self.entries[entry_id]).status is Status.FAILED
        ]
        if not undecided:
            return
        for one, decision in zip(undecided, decide(undecided), strict=False):
            self._take(transition.decided(one.entry, decision, self.now, by))

    def _take(self, change: Change) -> None:
        self.entries[change.entry.id] = change.entry
        if change.line:
            self.lines.append((change.entry.id, change.line))
        if change.act:
            self.acts.append(change)
