"""Transition: what may become of an entry, and when (spec A2). Pure.

    letter ─► failed ─decide─► waiting ─due─► retrying n ─handled─► resolved
                │                 ▲              │  │
                ├─► held ◄────────┼──no answer───┘  └─letter n─► failed, once more
                │    └────────────┼──a person──────► retrying n+1
                ├─► archived      │
                └─► skipped       └── replays left, and worth one

Every function returns the entry after the change with the line for its history, or None where the
entry is no longer in the state that the change needs. Two rules hold the replays together: a
letter that tells of replay n is the answer to replay n whatever else says so, and what speaks of
an older replay changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from angzarr.analysis.ledger.entry import (
    BY_HANDOVER,
    BY_REPLAY,
    Change,
    Entry,
    FailureClass,
    HistoryLine,
    Hold,
    Status,
    changed_to,
    is_known,
)
from angzarr.analysis.ledger.failure import (
    Failure,
    entry_id_of,
    event_id_of,
    explanation_of,
    facts_of,
    first_failed_at,
    replay_of,
)
from angzarr.analysis.ledger.operator_actions import (
    brought_back,
    is_parked,
    passed,
    skip_begun,
    skip_failed,
    skip_sent,
    went_on,
)
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.dead_letters.letter import DeadLetter
from angzarr.facts.act import ActKind
from angzarr.runtime.fast_init import fast_init, fast_replace

#: A filed entry not classified by then is looked at again: its worker died.
UNDECIDED: Final = timedelta(minutes=1)
#: How far a worker's clock may be ahead of the analysis worker's. Who is further would stand on top
#: of every page for ever.
SKEW: Final = timedelta(hours=1)

#: What a person decided, as is what one resolved; a letter that tells nothing new does not undo it.
DECIDED_BY_PEOPLE: Final = frozenset(
    {Status.SKIPPED, Status.ARCHIVED, Status.ESCALATED, Status.COMPENSATED}
)
#: What a decision may close an entry as.
_CLOSED_BY_RULE: Final = frozenset({Status.ARCHIVED, Status.SKIPPED})
#: In the others a replay is under way or nothing is left to do, or only newer workers know what.
REPLAYABLE: Final = frozenset(Status) - {Status.RETRYING, Status.RESOLVED, Status.COMPENSATED}


class Action(StrEnum):
    """What to do with an entry."""

    REPLAY = "replay"
    WAIT = "wait"  # and decide again; it is not a replay and uses none up
    HOLD = "hold"
    ARCHIVE = "archive"
    SKIP = "skip"
    COMPENSATE = "compensate"  # what the event set off is undone, see `compensation`


_STATUS: Final = {
    Action.REPLAY: Status.WAITING,
    Action.WAIT: Status.WAITING,
    Action.HOLD: Status.HELD,
    Action.ARCHIVE: Status.ARCHIVED,
    Action.SKIP: Status.SKIPPED,
    Action.COMPENSATE: Status.WAITING,
}


#: Decisions that close an entry are acts of the rule; what waits or is held is not done yet.
_ACTS: Final = {
    Action.ARCHIVE: ActKind.ENTRY_ARCHIVED,
    Action.SKIP: ActKind.ENTRY_SKIPPED,
}
#: What is done when the entry wakes, so that the brake and quiet hours come between.
_AT_A_TIME: Final = frozenset({Action.REPLAY, Action.WAIT, Action.COMPENSATE})
#: Statuses in which something is still to be done by itself at a time: no other entry wakes.
WAKES: Final = frozenset(
    {
        Status.FAILED,
        Status.WAITING,
        Status.RETRYING,
        Status.COMPENSATED,
        Status.SKIPPED,  # these two while a skip is to be sent or answered
        Status.RESOLVED,
    }
)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDecision:
    """An action on an entry and its reason; `delay` starts at the decision, for replay and wait."""

    action: Action
    failure_class: FailureClass
    evidence: str
    delay: timedelta = timedelta(0)
    #: For a hold: why.
    hold: Hold = Hold.RULE
    #: For a skip: whether later events wait behind the entry, and go on by a message.
    lets_go: bool = False


def continues(entry: Entry, failure: Failure) -> bool:
    """True if *failure*, whose replayed letter *entry* holds, is about the same event.

    Only a replay may learn which event an unreadable message held.
    """
    return entry.event_id in {"", event_id_of(failure)}


def filed(failure: Failure, now: datetime, entry_id: str = "") -> Change:
    """The entry of a failure that the ledger does not know yet; *entry_id* if that is known."""
    entry = Entry(
        id=entry_id or entry_id_of(failure),
        first_failed_at=believed(first_failed_at(failure), now),
        replays=replay_of(failure),
        wake_at=now + UNDECIDED,
        **_facts(failure, now),
    )
    return Change(entry, _letter_line(failure, now))


def failed_again(entry: Entry, failure: Failure, now: datetime) -> Change:
    """*entry* after a letter it has not seen; one of an older replay is only counted."""
    return Change(_after_letter(entry, failure, now), _letter_line(failure, now))


def is_given_on(entry: Entry) -> bool:
    """True if the letter of *entry* is on its way to the app that wrote it."""
    return entry.status is Status.ARCHIVED and entry.resolved_by.startswith(BY_HANDOVER)


def come_back(entry: Entry, now: datetime) -> Change:
    """*entry*, whose letter was given on and came again: it is to be decided anew."""
    again = changed_to(
        entry, status=Status.FAILED, resolved_by="", resolved_at=None, wake_at=now + UNDECIDED
    )
    return Change(again, None)


def holds(entry: Entry, failure: Failure) -> bool:
    """True if *failure* is the one that *entry* is to keep."""
    return (entry.letter_id, entry.letter_replay) == (failure.id, replay_of(failure))


def decided(entry: Entry, decision: EntryDecision, now: datetime, by: str) -> Change:
    """*entry* as *decision* wants it; an entry that waits on gets no line for each look."""
    due_at = now + decision.delay if decision.action in _AT_A_TIME else None
    status = _STATUS[decision.action]
    waits_on = decision.action is Action.WAIT and awaits_look(entry)
    changed = fast_replace(
        entry,
        revision=entry.revision + 1,
        status=status,
        hold=decision.hold if status is Status.HELD else None,
        failure_class=decision.failure_class,
        evidence=decision.evidence,
        next_replay_at=due_at if decision.action is Action.REPLAY else None,
        wake_at=due_at,
        resolved_by=by if status in _CLOSED_BY_RULE else "",
        resolved_at=now if status in _CLOSED_BY_RULE else None,
    )
    if decision.lets_go and status is Status.SKIPPED and not passed(entry):
        changed = replace(changed, **skip_begun(entry, now))
    if waits_on and decision.failure_class is entry.failure_class:
        return Change(changed, None)
    said = f"{decision.failure_class}: {decision.evidence}"
    line = HistoryLine(at=now, who=by, what=str(status), detail=said)
    return Change(changed, line, act=_ACTS.get(decision.action))


def awaits_look(entry: Entry) -> bool:
    """True if *entry* waits to be decided again, and not for a replay."""
    return entry.status is Status.WAITING and entry.next_replay_at is None


def is_judged_here(entry: Entry) -> bool:
    """True if this release knows the class that *entry* has, so that it may judge it anew."""
    return entry.failure_class is None or is_known(entry.failure_class)


def leased(entry: Entry, until: datetime) -> Entry:
    """*entry* as no other worker will look at it before *until*; no line is worth it."""
    return changed_to(entry, wake_at=until)


def replayable(entry: Entry) -> bool:
    """True if a replay of *entry* may begin: none is under way, and it is not settled."""
    return entry.status in REPLAYABLE and not passed(entry)


def retrying(entry: Entry, replay: int, now: datetime, by: str, lease: timedelta) -> Change | None:
    """*entry* with replay number *replay* begun: the next one, of an entry at rest."""
    if not replayable(entry) or replay != entry.replays + 1:
        return None
    changed = changed_to(
        entry,
        status=Status.RETRYING,
        replays=replay,
        next_replay_at=None,
        published_at=None,
        wake_at=now + lease,
        resolved_by="",
        resolved_at=None,
    )
    line = HistoryLine(at=now, who=by, what=Status.RETRYING.value, detail=f"replay {replay}")
    return Change(changed, line, act=ActKind.ENTRY_REPLAYED)


def ordered(change: Change | None, order: ReplayOrder) -> Change | None:
    """*change*, which begins a replay, with what is to be kept of it."""
    if change is None or change.line is None or not order:
        return change
    line = replace(change.line, detail=f"{change.line.detail} {order}")
    return change._replace(line=line, order=order)


def published(entry: Entry, replay: int, now: datetime, answer_by: datetime) -> Change | None:
    """*entry* with replay *replay*, or a skip, in the broker's hands, its answer awaited."""
    if passed(entry):
        return skip_sent(entry, replay, now, answer_by)
    if entry.status is not Status.RETRYING or entry.replays != replay or is_parked(entry):
        return None
    changed = changed_to(entry, published_at=now, wake_at=answer_by)
    line = HistoryLine(at=now, who="broker", what="published", detail=f"replay {replay}")
    return Change(changed, line)


def answered(
    entry: Entry, replay: int, now: datetime, by: str, status: Status = Status.RESOLVED
) -> Change | None:
    """*entry* after its replay *replay* ended well, also if the answer came late.

    The answer to a skip leaves the status that a person chose.
    """
    if passed(entry):
        return went_on(entry, replay, now, by)
    awaited = entry.status in {Status.RETRYING, Status.HELD, Status.ESCALATED}
    if not awaited or entry.replays != replay or entry.letter_replay >= replay:
        return None
    changed = changed_to(
        entry,
        status=status,
        next_replay_at=None,
        wake_at=None,
        resolved_by=by,
        resolved_at=now,
    )
    return Change(changed, HistoryLine(at=now, who=by, what=status.value))


def _after_letter(entry: Entry, failure: Failure, now: datetime) -> Entry:
    replay = replay_of(failure)
    counted = changed_to(entry, occurrences=entry.occurrences + 1)
    if replay < entry.replays:
        return counted
    told = replace(counted, **_facts(failure, now), replays=replay)
    if skip_failed(entry, failure):
        return brought_back(told, failure)
    if replay == entry.replays and (_settled(entry) or not is_known(entry.status)):
        return told
    return replace(
        told,
        status=Status.FAILED,
        hold=None,
        failure_class=None,
        evidence="",
        next_replay_at=None,
        published_at=None,
        wake_at=now + UNDECIDED,
        resolved_by="",
        resolved_at=None,
    )


def _settled(entry: Entry) -> bool:
    """True if a person decided about *entry*, or said that it was done by hand."""
    by_hand = entry.status is Status.RESOLVED and not entry.resolved_by.startswith(BY_REPLAY)
    return by_hand or entry.status in DECIDED_BY_PEOPLE


def believed(told: datetime, now: datetime) -> datetime:
    """The time of a failure by a worker's clock if plausible: it is not yet to come."""
    return told if told <= now + SKEW else now


def _facts(failure: Failure, now: datetime) -> dict[str, Any]:
    facts = facts_of(failure)
    facts["last_failed_at"] = believed(facts["last_failed_at"], now)
    return facts


def _letter_line(failure: Failure, now: datetime) -> HistoryLine:
    return HistoryLine(
        at=now,
        who=(isinstance(failure, DeadLetter) and failure.worker) or "worker",
        what=str(Status.FAILED),
        detail=explanation_of(failure),
        letter_id=failure.id,
        replay=replay_of(failure),
    )
