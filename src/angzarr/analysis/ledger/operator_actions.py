"""Verb: what a person may do with an entry besides replaying it (spec A5). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from angzarr.analysis.ledger.change import Change
from angzarr.analysis.ledger.entry import Entry, HistoryLine, Hold, Status
from angzarr.analysis.ledger.ordering_state import WENT_ON, is_parked, passed, skip_begun

#: Longest note that is kept, in characters.
LONGEST_NOTE: Final = 2_000
#: How long a compensation or a skip may take to be published before an analysis worker does it.
UNSENT: Final = timedelta(seconds=30)


class Verb(StrEnum):
    """What a person does with an entry."""

    SKIP = "skip"  # nothing is to be done about it
    ARCHIVE = "archive"  # kept for study
    RESTORE = "restore"  # back to those that wait for a person
    ESCALATE = "escalate"  # somebody else must look at it
    COMPENSATE = "compensate"  # what the event set off is undone, see `compensation`
    RESOLVE = "resolve"  # somebody did by hand what the handler should have done


_STATUS: Final = {
    Verb.SKIP: Status.SKIPPED,
    Verb.ARCHIVE: Status.ARCHIVED,
    Verb.RESTORE: Status.HELD,
    Verb.ESCALATE: Status.ESCALATED,
    Verb.COMPENSATE: Status.COMPENSATED,
    Verb.RESOLVE: Status.RESOLVED,
}
_OPEN: Final = frozenset({Status.FAILED, Status.WAITING, Status.HELD, Status.ESCALATED})
#: From which statuses each verb leads away; a replay under way is answered first.
_FROM: Final = {
    Verb.SKIP: _OPEN,
    Verb.ARCHIVE: _OPEN | {Status.SKIPPED},
    Verb.RESTORE: frozenset({Status.ARCHIVED, Status.SKIPPED}),
    Verb.ESCALATE: _OPEN - {Status.ESCALATED},
    Verb.COMPENSATE: _OPEN | {Status.ARCHIVED, Status.SKIPPED},
    Verb.RESOLVE: _OPEN | {Status.ARCHIVED, Status.SKIPPED},
}
#: After these nobody needs to look at the entry any more.
_CLOSING: Final = frozenset({Verb.SKIP, Verb.ARCHIVE, Verb.COMPENSATE, Verb.RESOLVE})
#: After these the lane of an ordered handler goes on; what is archived is kept to be replayed.
_PASSING: Final = frozenset({Verb.SKIP, Verb.COMPENSATE, Verb.RESOLVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A verb for an entry as it was seen at `revision`, and what the person says about it."""

    entry_id: str
    revision: int
    verb: Verb
    note: str = ""
    #: Whether a skip follows, so that the events behind it go on: it has the next replay's number.
    skips: bool = False


def refusal(entry: Entry, verb: Verb) -> str:
    """Return in one sentence why *verb* does not apply to *entry*, or an empty string."""
    if passed(entry) and verb in {Verb.RESTORE, Verb.ARCHIVE}:
        return WENT_ON
    if entry.status in _FROM[verb] or (entry.status is Status.RETRYING and is_parked(entry)):
        return ""
    if entry.status is Status.RETRYING:
        return "a replay of it is under way: wait for its answer"
    if entry.status is _STATUS[verb]:
        return f"the entry is {entry.status} already"
    return f"the entry is {entry.status}, which cannot be {_STATUS[verb]}"


def is_done(entry: Entry, verb: Verb) -> bool:
    """Tell whether *entry* is as *verb* leaves it."""
    return entry.status is _STATUS[verb]


def leaves(verb: Verb) -> frozenset[Status]:
    """Return the statuses that *verb* leads away from."""
    return _FROM[verb]


def asks_for_skip(entry: Entry, verb: Verb) -> bool:
    """Tell whether a skip must follow *verb*, so that the events behind *entry* go on."""
    return verb in _PASSING and entry.is_ordered and not passed(entry)


def told_of_lane(entry: Entry, verb: Verb) -> str:
    """Say what *verb* means for the events behind *entry*; nothing where none can wait there."""
    if not entry.is_ordered or passed(entry):
        return ""
    if verb in _PASSING:
        return "later events of its aggregate go on without it: it cannot be replayed after that"
    if verb is Verb.ARCHIVE:
        return "later events of its aggregate wait on behind it: skip lets them go on"
    return ""


def acted(
    entry: Entry, verb: Verb, now: datetime, by: str, note: str = "", *, skips: bool = False
) -> Change | None:
    """Return *entry* as *verb* leaves it, or None where it does not apply.

    A compensated one is due until `compensation_sent` says that the broker has it, and one whose
    skip follows until that is answered.
    """
    if refusal(entry, verb):
        return None
    closed, under_way = verb in _CLOSING, passed(entry)
    changed = replace(
        entry,
        status=_STATUS[verb],
        hold=Hold.PERSON if verb is Verb.RESTORE else entry.hold if under_way else None,
        next_replay_at=None,
        wake_at=entry.wake_at if under_way else None,
        resolved_by=by if closed else "",
        resolved_at=now if closed else None,
        revision=entry.revision + 1,
    )
    if verb is Verb.COMPENSATE:
        changed = replace(changed, wake_at=now + UNSENT, published_at=None, hold=None)
    if skips and asks_for_skip(entry, verb):
        changed = replace(changed, **skip_begun(entry, now + UNSENT))
    line = HistoryLine(at=now, who=by, what=verb.value, detail=note[:LONGEST_NOTE])
    return Change(changed, line)


def compensation_sent(entry: Entry, now: datetime) -> Change | None:
    """Return *entry* once the broker has its compensation; None: that is known, or not awaited."""
    if entry.status is not Status.COMPENSATED or entry.published_at is not None:
        return None
    sent = replace(entry, published_at=now, wake_at=None, revision=entry.revision + 1)
    return Change(sent, HistoryLine(at=now, who="broker", what="published", detail="compensation"))
