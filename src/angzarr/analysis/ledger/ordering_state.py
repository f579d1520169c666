"""Lane state: what an entry of an ordered handler is while its lane waits, or goes on. Pure.

Where somebody closes such an entry without its event being handled a *skip* is sent, which has a
replay's number and lets the later events go on. Whatever answer comes, the entry stays what was
said of it; only a letter of the skip itself brings it back, for then the lane still waits.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from angzarr.analysis.ledger.change import Change, changed_to
from angzarr.analysis.ledger.entry import (
    Entry,
    Failure,
    HistoryLine,
    Hold,
    Status,
    explanation_of,
    replay_of,
)
from angzarr.resilience.idempotency import RECORD_LIFE

#: A skip that nobody answered is sent again: by then no claim takes it for one under way.
SKIP_AGAIN: Final = RECORD_LIFE + timedelta(hours=1)
#: What an entry is closed as while, or after, a skip lets its lane go on.
_PASSED_AS: Final = frozenset({Status.SKIPPED, Status.RESOLVED, Status.COMPENSATED})
#: Why an entry that passed is not replayed, nor brought back.
WENT_ON: Final = "its lane went on without it, so it cannot be handled any more"
_PARKED: Final = "it waits in its lane behind an earlier event"
_GOES_ON: Final = "the later events behind it go on"


def passed(entry: Entry) -> bool:
    """Tell whether *entry*'s lane goes on without it, or will: no replay could be handled."""
    ordered_and_closed = entry.is_ordered and entry.status in _PASSED_AS
    return ordered_and_closed and entry.replays > entry.letter_replay


def is_parked(entry: Entry) -> bool:
    """Tell whether what was sent of *entry* waits in its lane, behind an earlier event."""
    return entry.hold is Hold.LANE


def skip_begun(entry: Entry, due_at: datetime) -> dict[str, Any]:
    """Return what is changed of *entry* so that a skip is sent by *due_at*, whoever dies."""
    return {"replays": entry.replays + 1, "published_at": None, "wake_at": due_at}


def skip_sent(entry: Entry, replay: int, now: datetime, again_at: datetime) -> Change | None:
    """Return *entry* with its skip in the broker's hands, and before it its compensation, if any.

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
    """Return *entry* while what was sent of it waits in its lane: its answer comes with its turn.

    Until then nobody misses one. A replay that was held for want of an answer is under way again.
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
    """Return *entry* after its lane went on without it."""
    if entry.replays != replay or not _awaits_skip(entry):
        return None
    changed = changed_to(entry, wake_at=None, hold=None, published_at=entry.published_at or now)
    return Change(changed, HistoryLine(at=now, who=by, what="went on", detail=_GOES_ON))


def skip_failed(entry: Entry, failure: Failure) -> bool:
    """Tell whether *failure* is what became of the skip that *entry* has under way."""
    return replay_of(failure) == entry.replays and _awaits_skip(entry)


def brought_back(entry: Entry, failure: Failure) -> Entry:
    """Return *entry*, whose skip is *failure*, for a person: by itself nothing may be replayed."""
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
    """Tell whether the skip of *entry* is not answered; a compensation is sent before that."""
    if not passed(entry) or (entry.status is Status.COMPENSATED and entry.published_at is None):
        return False
    return entry.wake_at is not None or is_parked(entry)
