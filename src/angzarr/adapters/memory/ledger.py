"""A ledger in this process: for tests. It forgets everything with the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from angzarr.adapters.memory.groups import MemoryGroups
from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import OPEN, Change, Entry, EntryDetail, HistoryLine, Status
from angzarr.analysis.ledger.failure import Failure, Unreadable
from angzarr.analysis.ledger.ledger import (
    ANY,
    EXACT,
    LONGEST_PAGE,
    EntryFilter,
    EntryPage,
    EntryTransitions,
    FailureStats,
    Ledger,
    Make,
    entry_page_of,
    read_cursor,
)
from angzarr.analysis.ledger.plan_filing import Decider, Filing, letter_ids_of
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder
from angzarr.clock import Clock
from angzarr.dead_letters.codec import encode
from angzarr.dead_letters.letter import DeadLetter


class MemoryLedger(MemoryGroups, EntryTransitions, Ledger):
    """Entries in a dictionary; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._failures: dict[str, Failure] = {}
        self._history: dict[str, list[HistoryLine]] = {}
        #: By entry and replay.
        self._orders: dict[tuple[str, int], ReplayOrder] = {}
        #: By letter id: (replay, entry id) of each time it was filed.
        self._letters: dict[str, set[tuple[int, str]]] = {}

    def add_failed_events(
        self, failures: Sequence[Failure], *, decide: Decider | None = None, by: str = ""
    ) -> list[Entry]:
        """File failures in order."""
        with self._lock:
            known = letter_ids_of(failures)
            letters = {one: set(places) for one in known if (places := self._letters.get(one))}
            filing = Filing(now=self._clock.now(), letters=letters)
            ids = filing.ids_for(failures)
            filing.know({one: self._entries[one] for one in ids if one in self._entries})
            filed = filing.file(failures, decide, by)
            self._keep(filing)
            return filed

    def due(self, *, limit: int, lease: timedelta, besides: Collection[Status] = ()) -> list[Entry]:
        """Take entries whose time has come."""
        with self._lock:
            now = self._clock.now()
            woken = [e for e in self._entries.values() if e.wake_at and e.wake_at <= now]
            woken = [entry for entry in woken if entry.status not in besides]
            woken.sort(key=lambda entry: (entry.wake_at or now, entry.id))
            taken = [transition.leased(entry, now + lease) for entry in woken[:limit]]
            self._entries.update((entry.id, entry) for entry in taken)
            return taken

    def find_by_letters(self, letter_ids: Collection[str]) -> Mapping[str, Entry]:
        """Return the entries in which letters were filed."""
        with self._lock:
            places = ((one, self._letters.get(one, ())) for one in letter_ids)
            return {one: self._entries[entry_id] for one, found in places for _, entry_id in found}

    def open_all(self, entry_ids: Collection[str]) -> Mapping[str, EntryDetail]:
        """Return entries with letter and history."""
        with self._lock:
            return {one: self._detail(one) for one in entry_ids if one in self._entries}

    def letter_sizes(self, entry_ids: Collection[str]) -> Mapping[str, int]:
        """Return the sizes of letters."""
        with self._lock:
            return {one: self._size(one) for one in entry_ids if one in self._entries}

    def get_failed_events(
        self,
        wanted: EntryFilter = ANY,
        *,
        status: Status | None = Status.FAILED,
        limit: int = 100,
        after: str = "",
    ) -> EntryPage:
        """Return a page of entries."""
        limit = min(limit, LONGEST_PAGE)
        behind = read_cursor(after) if after else None
        with self._lock:
            found = [e for e in self._entries.values() if _fits(e, wanted, status)]
        found.sort(key=lambda entry: (entry.last_failed_at, entry.id), reverse=True)
        if behind is not None:
            found = [e for e in found if (e.last_failed_at, e.id) < behind]
        return entry_page_of(found[: limit + 1], limit)

    def oldest_open(self, *, limit: int = 1, unmuted: bool = False) -> list[Entry]:
        """Return the open entries that failed first longest ago."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.status in OPEN]
            if unmuted:
                found = [entry for entry in found if not self._is_muted(entry.fingerprint)]
        return sorted(found, key=lambda entry: entry.first_failed_at)[:limit]

    def prune(self, before: Mapping[Status, datetime], *, limit: int) -> int:
        """Remove entries that were closed long ago."""
        with self._lock:
            gone = [e for e in self._entries.values() if self._may_go(e, before)][:limit]
            for entry in gone:
                del self._entries[entry.id], self._failures[entry.id], self._history[entry.id]
                for places in self._letters.values():
                    places -= {place for place in places if place[1] == entry.id}
                self._orders = {k: one for k, one in self._orders.items() if k[0] != entry.id}
                self._count(CountStep(entry, None))
                self._forget(entry.fingerprint)
            return len(gone)

    def get_failure_stats(self) -> FailureStats:
        """Count all entries."""
        with self._lock:
            entries = list(self._entries.values())
        return FailureStats(
            total=len(entries),
            by_status=_count(entry.status for entry in entries),
            by_class=_count(entry.failure_class or "" for entry in entries),
            by_domain=_count(entry.domain for entry in entries),
            by_handler=_count(entry.handler_name for entry in entries),
            occurrences=sum(entry.occurrences for entry in entries),
            replays=sum(entry.replays for entry in entries),
            oldest_open_at=min(
                (entry.first_failed_at for entry in entries if entry.status in OPEN), default=None
            ),
        )

    def _detail(self, entry_id: str) -> EntryDetail:
        entry = self._entries[entry_id]
        return EntryDetail(
            entry=entry,
            failure=self._failures[entry_id],
            history=tuple(self._history[entry_id]),
            order=self._orders.get((entry_id, entry.replays), AS_IT_IS),
            before=self._before(entry_id),
        )

    def _size(self, entry_id: str) -> int:
        failure = self._failures[entry_id]
        orders = [order for key, order in self._orders.items() if key[0] == entry_id]
        edits = [one for order in orders for one in (order.letter, order.before) if one]
        kept = failure.as_raw_letter() if isinstance(failure, Unreadable) else failure
        filed = len(encode(kept).body)
        return filed + sum(len(encode(one).body) for one in edits)

    def order_of(self, entry_id: str, replay: int) -> ReplayOrder:
        """Return what a replay of an entry was to be."""
        with self._lock:
            return self._orders.get((entry_id, replay), AS_IT_IS)

    def _is_muted(self, fingerprint: str) -> bool:
        group = self.open_group(fingerprint)
        until = group.muted_until if group else None
        return until is not None and self._clock.now() < until

    def _before(self, entry_id: str) -> DeadLetter | None:
        edits = [key for key, order in self._orders.items() if key[0] == entry_id and order.before]
        return self._orders[max(edits)].before if edits else None

    def _may_go(self, entry: Entry, before: Mapping[Status, datetime]) -> bool:
        end = before.get(entry.status)
        if end is None or entry.resolved_at is None or entry.wake_at is not None:
            return False
        return entry.resolved_at < end and self._history[entry.id][-1].at < end

    def _keep(self, filing: Filing) -> None:
        steps = filing.steps()
        self._letters.update(filing.letters)
        self._entries.update(filing.entries)
        self._failures.update(filing.kept)
        for entry_id, line in filing.lines:
            self._history.setdefault(entry_id, []).append(line)
        for step in steps:
            self._count(step)

    def _change_all(self, changes: Sequence[tuple[str, Make]]) -> list[Entry | None]:
        with self._lock:
            now = self._clock.now()
            return [self._change(entry_id, make, now) for entry_id, make in changes]

    def _change(self, entry_id: str, make: Make, now: datetime) -> Entry | None:
        entry = self._entries.get(entry_id)
        change = make(entry, now) if entry else None
        return self._write(change) if change else None

    def _write(self, change: Change) -> Entry:
        self._count(CountStep(self._entries.get(change.entry.id), change.entry))
        self._entries[change.entry.id] = change.entry
        if change.line:
            self._history.setdefault(change.entry.id, []).append(change.line)
        if change.order:
            self._orders[change.entry.id, change.entry.replays] = change.order
        return change.entry


def _fits(entry: Entry, wanted: EntryFilter, status: Status | None) -> bool:
    asked = ((getattr(wanted, name), getattr(entry, name)) for name in EXACT)
    return (
        (status is None or entry.status is status)
        and all(want is None or want == is_ for want, is_ in asked)
        and (wanted.since is None or entry.last_failed_at >= wanted.since)
        and (wanted.until is None or entry.last_failed_at < wanted.until)
        and entry.id.startswith(wanted.id_prefix)
    )


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(str(value) for value in values))
