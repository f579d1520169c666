"""Tally: how changes of entries change what is counted of them. Pure.

Whoever stores entries keeps these counts in the same transaction, so that no question about many
entries has to read them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from angzarr.analysis.entry import OPEN, Entry, HistoryLine, Status
from angzarr.analysis.group import LONGEST_MESSAGE, Group, GroupStatus


class Kind(NamedTuple):
    """What entries are counted by; an entry without a class has an empty one."""

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

    def plus(self, other: Amounts, times: int = 1) -> Amounts:
        """Return the sum, *other* taken *times*."""
        return Amounts(*(mine + times * its for mine, its in zip(self, other, strict=True)))


class Step(NamedTuple):
    """An entry before and after a change; None: it was not there, or is not any more."""

    before: Entry | None
    after: Entry | None

    @property
    def fails(self) -> bool:
        """Whether a letter told of a new failure."""
        if self.after is None or self.after.status is not Status.FAILED:
            return False
        return self.before is None or _letter_of(self.before) != _letter_of(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What steps add to a group; `latest` is the entry among them that failed last, as it is."""

    latest: Entry
    first_failed_at: datetime
    entries: int = 0
    open_entries: int = 0
    occurrences: int = 0
    fails: bool = False


def kind_of(entry: Entry) -> Kind:
    """Return what *entry* is counted as."""
    return Kind(
        entry.fingerprint,
        entry.domain,
        entry.handler_name,
        entry.event_type,
        (entry.failure_class or ""),
        entry.status.value,
    )


def tallied(steps: Iterable[Step]) -> dict[Kind, Amounts]:
    """Return what *steps* add to each kind; kinds to which they add nothing are left out."""
    sums: dict[Kind, Amounts] = {}
    for step in steps:
        for entry, times in ((step.before, -1), (step.after, 1)):
            if entry is not None:
                kind = kind_of(entry)
                sums[kind] = sums.get(kind, Amounts()).plus(_amounts_of(entry), times)
    return {kind: amounts for kind, amounts in sums.items() if any(amounts)}


def growths(steps: Iterable[Step]) -> dict[str, Growth]:
    """Return what *steps* add to each group, by fingerprint."""
    found: dict[str, Growth] = {}
    for step in steps:
        for entry, times in ((step.before, -1), (step.after, 1)):
            if entry is not None:
                grown = found.get(entry.fingerprint)
                found[entry.fingerprint] = _with(grown, entry, times, step)
    return found


def grown(group: Group | None, growth: Growth) -> Group:
    """Return *group*, or a new one, after *growth*."""
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
    """Return what a group says of the entry that failed last in it."""
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
    """Return *group* after a new failure, with its line, if it was said to be fixed."""
    if group.status is not GroupStatus.FIXED:
        return None
    line = HistoryLine(
        at=now,
        who="analysis worker",
        what=GroupStatus.REGRESSED.value,
        detail=f"failed again, entry {group.latest_entry_id}",
    )
    return replace(group, status=GroupStatus.REGRESSED, revision=group.revision + 1), line


def _letter_of(entry: Entry) -> tuple[str, int]:
    return entry.letter_id, entry.letter_replay


def _amounts_of(entry: Entry) -> Amounts:
    return Amounts(1, entry.occurrences, entry.replays)


def _with(so_far: Growth | None, entry: Entry, times: int, step: Step) -> Growth:
    if so_far is None:
        so_far = Growth(latest=entry, first_failed_at=entry.first_failed_at)
    newest = entry.last_failed_at >= so_far.latest.last_failed_at and times > 0
    return replace(
        so_far,
        latest=entry if newest else so_far.latest,
        first_failed_at=min(so_far.first_failed_at, entry.first_failed_at),
        entries=so_far.entries + times,
        open_entries=so_far.open_entries + times * (entry.status in OPEN),
        occurrences=so_far.occurrences + times * entry.occurrences,
        fails=so_far.fails or (times > 0 and step.fails),
    )
