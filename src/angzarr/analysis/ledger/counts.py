"""Counters: how changes of entries change the counts of the ledger; how peers fare (A3). Pure.

A store keeps these counts in the transaction of the change, so that no question about many entries
reads them all. `PeerStats` says how other events of the same handler or group fare now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from angzarr.analysis.ledger.entry import BY_REPLAY, OPEN, Entry, HistoryLine, Status
from angzarr.analysis.ledger.group import LONGEST_MESSAGE, Group, GroupStatus


class CountKey(NamedTuple):
    """The key by which entries are counted; an entry without a class has an empty one."""

    fingerprint: str
    domain: str
    handler_name: str
    event_type: str
    failure_class: str
    status: str


class Amounts(NamedTuple):
    """How many entries, letters filed in them and replays begun of them."""

    entries: int = 0
    occurrences: int = 0
    replays: int = 0


class CountStep(NamedTuple):
    """An entry before and after what happened to it; None: it was not there, or is no more."""

    before: Entry | None
    after: Entry | None
    #: Whether a letter reported a new failure.
    fails: bool = False


@dataclass(slots=True, kw_only=True)
class Growth:
    """The sum of steps for a group; `latest` is the entry among them that failed last, as it is."""

    latest: Entry
    first_failed_at: datetime
    entries: int = 0
    open_entries: int = 0
    occurrences: int = 0
    fails: bool = False


def kind_of(entry: Entry) -> CountKey:
    """The kind that *entry* is counted as."""
    return CountKey(
        entry.fingerprint,
        entry.domain,
        entry.handler_name,
        entry.event_type,
        (entry.failure_class or ""),
        str(entry.status),
    )


def counted_by_key(steps: Iterable[CountStep]) -> dict[CountKey, Amounts]:
    """The sums that *steps* add to each kind; kinds to which they add nothing are left out."""
    sums: dict[CountKey, list[int]] = {}
    for step in steps:
        for entry, times in ((step.before, -1), (step.after, 1)):
            if entry is not None:
                amounts = sums.setdefault(kind_of(entry), [0, 0, 0])
                amounts[0] += times
                amounts[1] += times * entry.occurrences
                amounts[2] += times * entry.replays
    return {kind: Amounts(*amounts) for kind, amounts in sums.items() if any(amounts)}


def growths(steps: Iterable[CountStep]) -> dict[str, Growth]:
    """The growth of each group by *steps*, by fingerprint."""
    found: dict[str, Growth] = {}
    for step in steps:
        for entry, times in ((step.before, -1), (step.after, 1)):
            if entry is not None:
                grown = found.get(entry.fingerprint)
                if grown is None:
                    grown = Growth(latest=entry, first_failed_at=entry.first_failed_at)
                    found[entry.fingerprint] = grown
                _add(grown, entry, times)
                grown.fails |= times > 0 and step.fails
    return found


def grown(group: Group | None, growth: Growth) -> Group:
    """*group*, or a new one, after *growth*."""
    latest = growth.latest
    if group is None:
        group = Group(
            fingerprint=latest.fingerprint,
            first_failed_at=growth.first_failed_at,
            last_failed_at=latest.last_failed_at,
        )
    told = latest if latest.last_failed_at >= group.last_failed_at else None
    return replace(
        group,
        first_failed_at=min(group.first_failed_at, growth.first_failed_at),
        entries=group.entries + growth.entries,
        open_entries=group.open_entries + growth.open_entries,
        occurrences=group.occurrences + growth.occurrences,
        **(sample_of(told) if told else {}),  # type: ignore[arg-type]
    )


def sample_of(entry: Entry) -> dict[str, object]:
    """The facts of a group about the entry that failed last in it."""
    return {
        "handler_name": entry.handler_name,
        "domain": entry.domain,
        "event_type": entry.event_type,
        "reason": entry.reason,
        "error_type": entry.error_type,
        "error_message": entry.error_message[:LONGEST_MESSAGE],
        "failure_class": entry.failure_class,
        "latest_entry_id": entry.id,
        "last_failed_at": entry.last_failed_at,
    }


def regressed(group: Group, now: datetime) -> tuple[Group, HistoryLine] | None:
    """*group* after a new failure, with its line, if it was said to be fixed."""
    if group.status is not GroupStatus.FIXED:
        return None
    line = HistoryLine(
        at=now,
        who="analysis worker",
        what=GroupStatus.REGRESSED.value,
        detail=f"failed again, entry {group.latest_entry_id}",
    )
    return replace(group, status=GroupStatus.REGRESSED, revision=group.revision + 1), line


def _add(grown: Growth, entry: Entry, times: int) -> None:
    if times > 0 and entry.last_failed_at >= grown.latest.last_failed_at:
        grown.latest = entry
    grown.first_failed_at = min(grown.first_failed_at, entry.first_failed_at)
    grown.entries += times
    grown.open_entries += times * (entry.status in OPEN)
    grown.occurrences += times * entry.occurrences


#: How long ago "lately" is.
LATELY: Final = timedelta(minutes=5)
#: How many entries are looked at, those that failed last: enough to tell, and no more however
#: large a group is.
MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStats:
    """Of the `MOST` entries that failed last: how many they are, and what became of them lately."""

    events: int = 0
    #: Those that failed lately, and are not handled since.
    failed: int = 0
    #: Those whose replay was handled lately.
    handled: int = 0

    def __str__(self) -> str:
        events = f"{self.events} or more" if self.events >= MOST else self.events
        noun = "event" if self.events == 1 else "events"
        return (
            f"{events} {noun}, lately {self.failed} failed and {self.handled} handled in a replay"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReport:
    """How handlers and groups fare; those not asked for are missing."""

    handlers: Mapping[str, PeerStats] = field(default_factory=dict)
    groups: Mapping[str, PeerStats] = field(default_factory=dict)


def counting_in(seen: PeerReport, steps: Iterable[CountStep], since: datetime) -> PeerReport:
    """The statistics *seen* in a ledger as they will be after *steps*; lately is *since*.

    Exact up to `MOST` entries. Beyond that older ones may count that newer ones would push out.
    """
    handlers, groups = _Sums(seen.handlers), _Sums(seen.groups)
    new: dict[tuple[str, str, bool, bool], int] = {}
    for before, after, _ in steps:
        if before is not None:
            _count_in(handlers, groups, (*_names(before), *_lately(before, since)), -1)
        if after is not None:
            kind = (*_names(after), *_lately(after, since))
            new[kind] = new.get(kind, 0) + 1
    for kind, times in new.items():
        _count_in(handlers, groups, kind, times)
    return PeerReport(handlers=handlers.stats(), groups=groups.stats())


_names: Final = attrgetter("handler_name", "fingerprint")


def _count_in(
    handlers: _Sums, groups: _Sums, kind: tuple[str, str, bool, bool], times: int
) -> None:
    handler, group, failed, handled = kind
    handlers.add(handler, times, failed, handled)
    groups.add(group, times, failed, handled)


def _lately(entry: Entry, since: datetime) -> tuple[bool, bool]:
    """True if *entry* failed, and if a replay of it was handled, at *since* or later."""
    if entry.status is not Status.RESOLVED:
        return entry.last_failed_at >= since, False
    lately = entry.resolved_at is not None and entry.resolved_at >= since
    return False, lately and entry.resolved_by.startswith(BY_REPLAY)


class _Sums:
    """The statistics of names, counted on; no more than `MOST` of anything."""

    def __init__(self, seen: Mapping[str, PeerStats]) -> None:
        self._sums = {name: [one.events, one.failed, one.handled] for name, one in seen.items()}

    def add(self, name: str, times: int, failed: bool, handled: bool) -> None:  # noqa: FBT001 - counted
        """Count *times* entries of *name*, or take one away; what has no name is not counted."""
        if not name:
            return
        sums = self._sums.setdefault(name, [0, 0, 0])
        for which, counts in enumerate((True, failed, handled)):
            if counts:
                sums[which] = min(max(sums[which] + times, 0), MOST)

    def stats(self) -> dict[str, PeerStats]:
        """All of them."""
        return {
            name: PeerStats(events=events, failed=failed, handled=handled)
            for name, (events, failed, handled) in self._sums.items()
        }


class Peers(Protocol):
    """The facts that the ledger knows of many events at once."""

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime, /
    ) -> PeerReport:
        """The statistics of each of *handlers* and of *groups* (fingerprints); lately is *since*.

        One round trip; raises LedgerUnavailable.
        """

    def close(self) -> None:
        """Let connections go; safe to call twice."""
