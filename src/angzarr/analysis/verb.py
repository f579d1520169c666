"""Verb: what a person may do with an entry without sending it anywhere (spec A5). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from angzarr.analysis.entry import Entry, HistoryLine, Status
from angzarr.analysis.transition import Change

#: Longest note that is kept, in characters.
LONGEST_NOTE: Final = 2_000


class Verb(StrEnum):
    """What a person does with an entry."""

    SKIP = "skip"  # nothing is to be done about it
    ARCHIVE = "archive"  # kept for study
    RESTORE = "restore"  # back to those that wait for a person
    ESCALATE = "escalate"  # somebody else must look at it
    RESOLVE = "resolve"  # somebody did by hand what the handler should have done


_STATUS: Final = {
    Verb.SKIP: Status.SKIPPED,
    Verb.ARCHIVE: Status.ARCHIVED,
    Verb.RESTORE: Status.HELD,
    Verb.ESCALATE: Status.ESCALATED,
    Verb.RESOLVE: Status.RESOLVED,
}
_OPEN: Final = frozenset({Status.FAILED, Status.WAITING, Status.HELD, Status.ESCALATED})
#: From which statuses each verb leads away; a replay under way is answered first.
_FROM: Final = {
    Verb.SKIP: _OPEN,
    Verb.ARCHIVE: _OPEN | {Status.SKIPPED, Status.RESOLVED, Status.COMPENSATED},
    Verb.RESTORE: frozenset({Status.ARCHIVED, Status.SKIPPED}),
    Verb.ESCALATE: _OPEN - {Status.ESCALATED},
    Verb.RESOLVE: _OPEN | {Status.ARCHIVED, Status.SKIPPED},
}
#: After these nobody needs to look at the entry any more.
_CLOSING: Final = frozenset({Verb.SKIP, Verb.ARCHIVE, Verb.RESOLVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A verb for an entry as it was seen at `revision`, and what the person says about it."""

    entry_id: str
    revision: int
    verb: Verb
    note: str = ""


def refusal(entry: Entry, verb: Verb) -> str:
    """Return in one sentence why *verb* does not apply to *entry*, or an empty string."""
    if entry.status in _FROM[verb]:
        return ""
    if entry.status is Status.RETRYING:
        return "a replay of it is under way: wait for its answer"
    if entry.status is _STATUS[verb]:
        return f"the entry is {entry.status} already"
    return f"the entry is {entry.status}, which cannot be {_STATUS[verb]}"


def acted(entry: Entry, verb: Verb, now: datetime, by: str, note: str = "") -> Change | None:
    """Return *entry* as *verb* leaves it, or None where it does not apply.

    Whoever closed an archived entry before stays named: archiving keeps, it does not resolve.
    """
    if refusal(entry, verb):
        return None
    closed = verb in _CLOSING
    keeps = verb is Verb.ARCHIVE and entry.resolved_at is not None
    changed = replace(
        entry,
        status=_STATUS[verb],
        next_replay_at=None,
        wake_at=None,
        resolved_by=(entry.resolved_by if keeps else by) if closed else "",
        resolved_at=(entry.resolved_at if keeps else now) if closed else None,
        revision=entry.revision + 1,
    )
    line = HistoryLine(at=now, who=by, what=verb.value, detail=note[:LONGEST_NOTE])
    return Change(changed, line)
