"""Operator actions: what a person may do with an entry besides replaying it (spec A5). Pure.

An entry of an ordered handler holds up the later events of its aggregate. Closing it unhandled
sends a *skip*, which has a replay's number and lets them go on. The entry then stays what the
person said of it; only a letter of the skip itself brings it back, since its lane still waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from angzarr.analysis.ledger.entry import Change, Entry, HistoryLine, Hold, Status, changed_to
from angzarr.analysis.ledger.failure import Failure, explanation_of, replay_of
from angzarr.facts.act import ActKind
from angzarr.resilience.idempotency import RECORD_LIFE

#: A skip without an answer is sent again: by then no claim takes it for one under way.
SKIP_AGAIN: Final = RECORD_LIFE + timedelta(hours=1)
#: What an entry is closed as while, or after, a skip lets its lane go on.
_PASSED_AS: Final = frozenset({Status.SKIPPED, Status.RESOLVED, Status.COMPENSATED})
#: Why an entry that passed is not replayed, nor brought back.
WENT_ON: Final = "its lane went on without it, so it cannot be handled any more"
_PARKED: Final = "it waits in its lane behind an earlier event"
_GOES_ON: Final = "the later events behind it go on"


def passed(entry: Entry) -> bool:
    """True if *entry*'s lane goes on without it, or will: no replay could be handled."""
    ordered_and_closed = entry.is_ordered and entry.status in _PASSED_AS
    return ordered_and_closed and entry.replays > entry.letter_replay


def is_parked(entry: Entry) -> bool:
    """True if what was sent of *entry* waits in its lane, behind an earlier event."""
    return entry.hold is Hold.LANE


def skip_begun(entry: Entry, due_at: datetime) -> dict[str, Any]:
    """The changes of *entry* by which a skip is sent by *due_at*, whichever worker dies."""
    return {"replays": entry.replays + 1, "published_at": None, "wake_at": due_at}


def skip_sent(entry: Entry, replay: int, now: datetime, again_at: datetime) -> Change | None:
    """*entry* with its skip in the broker's hands, and before it its compensation, if any.

    What was answered, or is parked, before that is noted is awaited no more.
    """
    if entry.replays != replay or entry.wake_at is None:
        return None
    said = f"skip, replay {replay}"
    if entry.status is Status.COMPENSATED and entry.published_at is None:
        said = f"compensation; {said}"
    changed = changed_to(entry, published_at=now, wake_at=again_at)
    return Change(changed, HistoryLine(at=now, who="broker", what="published", detail=said))


def parked(entry: Entry, replay: int, now: datetime, by: str) -> Change | None:
    """*entry* while what was sent of it waits in its lane: its answer comes with its turn.

    Until then no answer is missed. A replay that was held for want of one is under way again.
    """
    if entry.replays != replay or entry.letter_replay >= replay:
        return None
    if entry.status is Status.RETRYING or entry.hold is Hold.ANSWER:
        status, awaited = Status.RETRYING, not is_parked(entry)
    else:
        status, awaited = entry.status, _awaits_skip(entry) and not is_parked(entry)
    if not awaited:
        return None
    since = entry.published_at or now
    changed = changed_to(entry, status=status, hold=Hold.LANE, wake_at=None, published_at=since)
    line = HistoryLine(at=now, who=by, what="parked", detail=_PARKED)
    return Change(changed, line)


def went_on(entry: Entry, replay: int, now: datetime, by: str) -> Change | None:
    """*entry* after its lane went on without it."""
    if entry.replays != replay or not _awaits_skip(entry):
        return None
    changed = changed_to(entry, wake_at=None, hold=None, published_at=entry.published_at or now)
    return Change(changed, HistoryLine(at=now, who=by, what="went on", detail=_GOES_ON))


def skip_failed(entry: Entry, failure: Failure) -> bool:
    """True if *failure* is what became of the skip that *entry* has under way."""
    return replay_of(failure) == entry.replays and _awaits_skip(entry)


def brought_back(entry: Entry, failure: Failure) -> Entry:
    """*entry*, whose skip is *failure*, for a person: by itself nothing may be replayed."""
    return replace(
        entry,
        status=Status.HELD,
        hold=Hold.ANSWER,
        evidence=f"its skip failed, so later events wait behind it: {explanation_of(failure)}",
        wake_at=None,
        resolved_by="",
        resolved_at=None,
    )


def _awaits_skip(entry: Entry) -> bool:
    """True if the skip of *entry* is not answered; a compensation is sent before that."""
    if not passed(entry) or (entry.status is Status.COMPENSATED and entry.published_at is None):
        return False
    return entry.wake_at is not None or is_parked(entry)


#: Longest note that is kept, in characters.
LONGEST_NOTE: Final = 2_000
#: How long a compensation or a skip may take to be published before an analysis worker does it.
UNSENT: Final = timedelta(seconds=30)


class Verb(StrEnum):
    """What a person does with an entry."""

    SKIP = "skip"  # nothing is to be done about it
    ARCHIVE = "archive"  # kept for study
    RESTORE = "restore"  # back to those that wait for a person
    ESCALATE = "escalate"  # another person must look at it
    COMPENSATE = "compensate"  # what the event set off is undone, see `compensation`
    RESOLVE = "resolve"  # a person did by hand what the handler should have done


_STATUS: Final = {
    Verb.SKIP: Status.SKIPPED,
    Verb.ARCHIVE: Status.ARCHIVED,
    Verb.RESTORE: Status.HELD,
    Verb.ESCALATE: Status.ESCALATED,
    Verb.COMPENSATE: Status.COMPENSATED,
    Verb.RESOLVE: Status.RESOLVED,
}
#: What the fact of each is.
_ACTS: Final = {
    Verb.SKIP: ActKind.ENTRY_SKIPPED,
    Verb.ARCHIVE: ActKind.ENTRY_ARCHIVED,
    Verb.RESTORE: ActKind.ENTRY_RESTORED,
    Verb.ESCALATE: ActKind.ENTRY_ESCALATED,
    Verb.COMPENSATE: ActKind.ENTRY_COMPENSATED,
    Verb.RESOLVE: ActKind.ENTRY_RESOLVED,
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
#: After these the entry needs no further work.
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
    """Why *verb* does not apply to *entry*, in one sentence, or an empty string."""
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
    """True if *entry* is as *verb* leaves it."""
    return entry.status is _STATUS[verb]


def leaves(verb: Verb) -> frozenset[Status]:
    """The statuses that *verb* leads away from."""
    return _FROM[verb]


def asks_for_skip(entry: Entry, verb: Verb) -> bool:
    """True if a skip must follow *verb*, so that the events behind *entry* go on."""
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
    """*entry* as *verb* leaves it, or None where it does not apply.

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
    return Change(changed, line, act=_ACTS[verb])


def compensation_sent(entry: Entry, now: datetime) -> Change | None:
    """*entry* once the broker has its compensation; None: that is known, or not awaited."""
    if entry.status is not Status.COMPENSATED or entry.published_at is not None:
        return None
    sent = replace(entry, published_at=now, wake_at=None, revision=entry.revision + 1)
    return Change(sent, HistoryLine(at=now, who="broker", what="published", detail="compensation"))
