"""The groups of a ledger in this process."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

from angzarr.analysis.ledger.counts import CountStep, grown, growths, regressed
from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.ledger.group import (
    OPEN_GROUPS,
    Amendment,
    Group,
    GroupFilter,
    GroupPage,
    Groups,
    amended,
)
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, Cursor, read_cursor
from angzarr.clock import Clock, SystemClock

#: Filter fields that a group's field of the same name must equal.
_EQUAL = ("handler_name", "domain", "error_type", "owner", "status")


class MemoryGroups(Groups):
    """Groups in a dictionary, beside the entries that they count."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._groups: dict[str, Group] = {}
        self._group_history: dict[str, list[HistoryLine]] = {}

    def get_groups(
        self, wanted: GroupFilter = OPEN_GROUPS, *, limit: int = 100, after: str = ""
    ) -> GroupPage:
        """Return a page of groups."""
        limit = min(limit, LONGEST_PAGE)
        behind = read_cursor(after) if after else None
        with self._lock:
            found = [group for group in self._groups.values() if _fits(group, wanted)]
            found.sort(key=_place, reverse=True)
            if behind is not None:
                found = [group for group in found if _place(group) < behind]
            shown = tuple(self._counted(group) for group in found[:limit])
        cursor = str(_place(shown[-1])) if len(found) > limit and shown else ""
        return GroupPage(groups=shown, next=cursor)

    def open_group(self, fingerprint: str) -> Group | None:
        """Return a group."""
        with self._lock:
            found = self._groups.get(fingerprint)
            return self._counted(found) if found else None

    def amend(
        self, fingerprint: str, amendment: Amendment, *, revision: int, by: str
    ) -> Group | None:
        """Change what people say of a group, and tell its history."""
        with self._lock:
            group = self._groups.get(fingerprint)
            if group is None or group.revision != revision:
                return None
            if made := amended(group, amendment, self._clock.now(), by):
                group = self._say(*made)
            return self._counted(group)

    def group_history(self, fingerprint: str) -> tuple[HistoryLine, ...]:
        """Return what happened to a group itself."""
        with self._lock:
            return tuple(self._group_history.get(fingerprint, ()))

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""

    def _count(self, step: CountStep) -> None:
        """Add what *step* changes to the groups that it touches."""
        for fingerprint, growth in growths([step]).items():
            group = grown(self._groups.get(fingerprint), growth)
            self._groups[fingerprint] = group
            if growth.fails and (change := regressed(group, self._clock.now())):
                self._say(*change)

    def _forget(self, fingerprint: str) -> None:
        """Remove a group that has no entries and of which nobody said anything."""
        group = self._groups[fingerprint]
        if not group.entries and group.revision == 1:
            del self._groups[fingerprint]

    def _say(self, group: Group, line: HistoryLine) -> Group:
        self._groups[group.fingerprint] = group
        self._group_history.setdefault(group.fingerprint, []).append(line)
        return group

    def _counted(self, group: Group) -> Group:
        mine = (e for e in self._entries.values() if e.fingerprint == group.fingerprint)
        return replace(group, by_status=dict(Counter(entry.status.value for entry in mine)))


def _place(group: Group) -> Cursor:
    return Cursor(group.last_failed_at, group.fingerprint)


def _fits(group: Group, wanted: GroupFilter) -> bool:
    asked = ((getattr(wanted, name), getattr(group, name)) for name in _EQUAL)
    return (
        all(want is None or want == is_ for want, is_ in asked)
        and (group.open_entries > 0 or not wanted.open_only)
        and (wanted.since is None or group.last_failed_at >= wanted.since)
        and (wanted.until is None or group.last_failed_at < wanted.until)
        and group.fingerprint.startswith(wanted.prefix)
    )
