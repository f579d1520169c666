"""The facts of acts on the ledger: on entries, groups, replay jobs and the brake (spec F1). Pure.

A store writes them in the transaction of the act, so that neither is without the other. Ids name
the thing, its revision and the time: a thing that was removed and came again has other facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from angzarr.analysis.ledger.emergency_stop import BrakeState, Scope
from angzarr.analysis.ledger.entry import Change, Entry, HistoryLine
from angzarr.analysis.ledger.group import Group, GroupStatus
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.facts.act import NAMING, ActKind, ActOrigin, act_fact
from angzarr.facts.fact import Fact
from angzarr.facts.resolution import letter_fact_id

if TYPE_CHECKING:  # jobs are built on the ledger
    from angzarr.analysis.replay.job import ReplayJob


def facts_of_changes(changes: Iterable[Change], origin: ActOrigin) -> list[Fact]:
    """The facts of those among *changes* of entries that are acts."""
    return [
        _entry_fact(one.act, one.entry, one.line, one.order, origin)
        for one in changes
        if one.act is not None and one.line is not None
    ]


def _entry_fact(
    kind: ActKind, entry: Entry, line: HistoryLine, order: ReplayOrder, origin: ActOrigin
) -> Fact:
    data: dict[str, Any] = {
        "entry_id": entry.id,
        "dlq_message_id": entry.letter_id,
        "group": entry.fingerprint,
        "event_type": entry.event_type,
        "correlation_id": entry.correlation_id or None,
        "status": str(entry.status),
    }
    reason = line.detail
    if kind is ActKind.ENTRY_REPLAYED:
        # Facts are for ever: what was changed, with its values, stands in the history alone.
        bare = str(replace(order, said=""))
        reason = reason.replace(str(order), bare) if order else reason
        edited = order.letter is not None
        data |= {"replay": entry.replays, "edited": edited, "order": bare or None}
    return act_fact(
        kind,
        f"entry:{entry.id}:{entry.revision}:{line.at.isoformat()}",
        line.at,
        by=line.who,
        origin=origin,
        reason=reason,
        data=data,
        tenant_id=entry.tenant_id or None,
        entity_id=entry.root or None,
        tool_id=entry.handler_name or None,
        event_id=entry.event_id or None,
        trace_id=entry.trace_id or None,
        resolves=letter_fact_id(entry.letter_id) if kind in NAMING else None,
    )


#: By what a job's history says of it; that it waits, or goes on by itself, is no act.
_OF_JOBS: Final = {
    "proposed": ActKind.REPLAY_JOB_PROPOSED,
    "approved": ActKind.REPLAY_JOB_APPROVED,
    "running": ActKind.REPLAY_JOB_STARTED,
    "paused": ActKind.REPLAY_JOB_PAUSED,
    "resumed": ActKind.REPLAY_JOB_RESUMED,
    "halted": ActKind.REPLAY_JOB_HALTED,
    "cancelled": ActKind.REPLAY_JOB_CANCELLED,
    "done": ActKind.REPLAY_JOB_DONE,
}
_STAGE: Final = "stage "
#: How the history begins to say what an edit changes (`job_progress.first_line`).
_EDITED: Final = "edited: "


def facts_of_job(job: ReplayJob, lines: Sequence[HistoryLine], origin: ActOrigin) -> list[Fact]:
    """The facts of what *lines* say of *job*, which they made what it is."""
    found = []
    for line in lines:
        kind = _OF_JOBS.get(line.what)
        if kind is None and line.what.startswith(_STAGE):
            kind = ActKind.REPLAY_JOB_STAGE_PASSED
        if kind is not None:
            found.append(_job_fact(kind, job, line, origin))
    return found


def _without_values(detail: str) -> str:
    """What the history says of a job with an edit, without what that changes."""
    said, edited, _ = detail.partition(_EDITED)
    return f"{said}edited" if edited else said


def _job_fact(kind: ActKind, job: ReplayJob, line: HistoryLine, origin: ActOrigin) -> Fact:
    data: dict[str, Any] = {
        "job_id": job.id,
        "group": job.group or None,
        "handlers": list(job.handlers),
        "created_by": job.created_by,
        "note": job.note or None,
        "stage": job.stage,
        "total": job.total,
        "sent": job.sent,
        "handled": job.handled,
        "failed": job.failed + job.unanswered,
        "refused": job.refused,
    }
    if job.approved_by:
        data["approved_by"] = job.approved_by
    if job.edit:
        data["edit"] = job.edit
    return act_fact(
        kind,
        f"replay_job:{job.id}:{job.revision}:{line.what}:{line.at.isoformat()}",
        line.at,
        by=line.who,
        origin=origin,
        reason=_without_values(line.detail) if job.edit else line.detail,
        data=data,
        tenant_id=job.selection.wanted.tenant_id,
        tool_id=job.handlers[0] if len(job.handlers) == 1 else None,
    )


def fact_of_group(group: Group, line: HistoryLine, origin: ActOrigin) -> Fact:
    """The fact that *line* says of *group*: a person changed it, or it failed again once fixed."""
    regressed = line.what == GroupStatus.REGRESSED.value
    return act_fact(
        ActKind.GROUP_REGRESSED if regressed else ActKind.GROUP_CHANGED,
        f"group:{group.fingerprint}:{group.revision}:{line.at.isoformat()}",
        line.at,
        by=line.who,
        origin=ActOrigin.AUTOMATIC if regressed else origin,
        reason=line.detail,
        data={
            "group": group.fingerprint,
            "status": str(group.status),
            "owner": group.owner or None,
            "domain": group.domain,
        },
        tool_id=group.handler_name or None,
    )


def fact_of_brake(state: BrakeState, number: int, origin: ActOrigin) -> Fact:
    """The fact of move *number* of the brake, after which it is as *state*."""
    assert state.at is not None  # noqa: S101 - each move has a time
    released = state.scope is Scope.NOTHING
    return act_fact(
        ActKind.BRAKE_RELEASED if released else ActKind.BRAKE_PULLED,
        f"brake:{number}:{state.at.isoformat()}",
        state.at,
        by=state.by,
        origin=origin,
        reason=state.why,
        data={"scope": state.scope.value, "until": state.until},
    )
