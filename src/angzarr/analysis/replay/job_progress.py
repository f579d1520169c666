"""Job rules: how a replay job goes on, and when it halts itself: the canary (spec A4). Pure.

    proposed ─approved─► running ──all sent and answered──► done
        │                 │  ▲ │
        │       a person  │  │ └─too many failed─► halted
        │                 ▼  │                       │
        │               paused ──resumed, a new canary ◄┘
        └────────── any of them ──a person──► cancelled

A round goes through the stages: each begins once all replays of the one before were answered. One
failure in the first, the canary, halts the job. Later it halts once more of the last answers
failed than the plan's share allows. Each change adds a line to the job's history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import OPEN, Entry, HistoryLine, Status, counted, is_known
from angzarr.analysis.ledger.transition import DECIDED_BY_PEOPLE, REPLAYABLE
from angzarr.analysis.replay.job import (
    ENDED,
    ENDED_STATES,
    REPLAYED,
    ItemState,
    JobEdit,
    JobItem,
    JobStatus,
    ReplayJob,
)
from angzarr.analysis.replay.job_limits import (
    NEXT_PROBE,
    is_anybody,
    same_person,
    stage_size,
    tokens_at,
    waits_for,
)

#: Answers by which a stage is judged, at most: the last ones.
WINDOW: Final = 50

#: The entries of a job whose selection names no status: open ones, at rest.
CHOSEN_BY_DEFAULT: Final = OPEN - {Status.RETRYING}


#: How answers are remembered: what is parked speaks neither for nor against what is replayed.
_MARKS: Final = {ItemState.HANDLED: "h", ItemState.PARKED: ""}


class ItemAnswer(NamedTuple):
    """How one replay of a job ended, and the round in which it was sent."""

    state: ItemState
    round: int


class EntrySnapshot(NamedTuple):
    """The facts that a job needs of an entry."""

    status: Status
    replays: int
    letter_replay: int
    #: Its replay waits in its lane, behind an earlier event.
    parked: bool = False


def filled(
    job: ReplayJob,
    *,
    total: int,
    handlers: Iterable[str],
    elsewhere: tuple[int, str],
    behind: str,
    approval_over: int | None,
    besides: int = 0,
    edit: JobEdit | None = None,
    redirects_wait: bool = False,
) -> ReplayJob:
    """A new *job* with its entries chosen.

    *elsewhere*: how many more there are that belong to another job, and one such. *behind*: a job
    that runs over the same group. *besides*: `job_limits.besides`. *redirects_wait*: for a second
    person, if it sends its entries elsewhere than their letters say.
    """
    count, other = elsewhere
    said = f"{count} more are in job {other}, which is not finished" if count else ""
    called = {job.plan.to_handler} if job.plan.to_handler else {*handlers} - {""}
    job = replace(job, total=total, handlers=tuple(sorted(called)), said=said)
    places = str(job.plan.order) if redirects_wait else ""
    if waits := waits_for(total, besides, approval_over, edit, places):
        if is_anybody(job.created_by):
            waits += f", and {job.created_by} may be anybody: propose it by name"
        return replace(job, status=JobStatus.PROPOSED, said=_joined(said, waits))
    if total and behind:
        return replace(job, said=_joined(said, f"waits for job {behind} over the same group"))
    if not total:
        return replace(job, status=JobStatus.DONE, ended_at=job.created_at)
    return job


def begun(job: ReplayJob, count: int, now: datetime) -> ReplayJob:
    """*job* with *count* replays more under way."""
    if not count:
        return job
    return replace(
        job,
        sent=job.sent + count,
        stage_sent=job.stage_sent + count,
        tokens=tokens_at(job, now) - count,
        filled_at=now,
    )


def passed_over(job: ReplayJob, count: int, now: datetime) -> ReplayJob:
    """*job* after *count* entries were refused that had not begun."""
    return settled(replace(job, refused=job.refused + count), now)


def put_back(
    item: JobItem, seen: EntrySnapshot | None, *, edit: str = "", sent: str = ""
) -> JobItem:
    """*item*, which has a number, as chosen again; sent, if its entry has that replay.

    Refused, if that replay did not send the *edit* of the job: *sent* is what it sent.
    """
    if seen is None or seen.replays < item.replay:
        return item._replace(state=ItemState.CHOSEN)
    if sent != edit:
        return item._replace(state=ItemState.REFUSED, reason=REPLAYED)
    return item._replace(state=ItemState.SENT)


def noted(job: ReplayJob, items: Iterable[JobItem], said: str, now: datetime) -> ReplayJob:
    """*job* after it was noted what became of replays that had begun.

    One that is refused or put back was not sent after all.
    """
    for item in items:
        if item.state is ItemState.SENT:
            continue
        in_stage = item.round == job.round and job.stage_sent > job.stage_answered
        job = replace(
            job,
            sent=job.sent - 1,
            stage_sent=job.stage_sent - in_stage,
            refused=job.refused + (item.state is ItemState.REFUSED),
            tokens=job.tokens + (item.state is ItemState.CHOSEN),
        )
    if job.status is JobStatus.RUNNING:
        job = replace(job, said=said)
    return settled(job, now)


def answered(job: ReplayJob, answers: Iterable[ItemAnswer], now: datetime) -> ReplayJob:
    """*job* after *answers*, in a later stage, halted or done if they say so.

    Answers of an earlier round are counted and decide nothing.
    """
    for answer in answers:
        job = _counted(job, answer)
        if answer.round == job.round:
            job = _judged(job, answer)
    return settled(job, now)


def settled(job: ReplayJob, now: datetime) -> ReplayJob:
    """*job* in the stage that it has reached; done where nothing is left to wait for."""
    if job.status is not JobStatus.RUNNING:
        return job
    if job.left == 0 and job.out == 0:
        return replace(job, status=JobStatus.DONE, said="", ended_at=now)
    if job.stage < len(job.plan.stages) and _is_over(job):
        return replace(job, stage=job.stage + 1, stage_sent=0, stage_answered=0, recent="", said="")
    return job


def approved(job: ReplayJob, now: datetime, by: str) -> ReplayJob | None:
    """*job* as a second person lets it begin."""
    if job.status is not JobStatus.PROPOSED or same_person(by, job.created_by):
        return None
    return settled(replace(job, status=JobStatus.RUNNING, said="", approved_by=by), now)


def paused(job: ReplayJob, _now: datetime, by: str) -> ReplayJob | None:
    """*job* paused by a person."""
    if job.status is not JobStatus.RUNNING:
        return None
    return replace(job, status=JobStatus.PAUSED, said=f"paused by {by}")


def resumed(job: ReplayJob, now: datetime, _by: str) -> ReplayJob | None:
    """*job* at the beginning of a new round."""
    if job.status not in {JobStatus.PAUSED, JobStatus.HALTED}:
        return None
    fresh = replace(
        job,
        status=JobStatus.RUNNING,
        said="",
        round=job.round + 1,
        stage=0,
        stage_sent=0,
        stage_answered=0,
        recent="",
    )
    return settled(fresh, now)


def cancelled(job: ReplayJob, now: datetime, by: str) -> ReplayJob | None:
    """*job* ended by a person."""
    if job.status in ENDED or not is_known(job.status):
        return None
    return replace(job, status=JobStatus.CANCELLED, said=f"cancelled by {by}", ended_at=now)


def refusal(
    item: JobItem, seen: EntrySnapshot | None, chosen_as: Status, most_replays: int, edit: str = ""
) -> str:
    """Why an entry that was chosen as *chosen_as* is not replayed now, or nothing.

    Its letter, and an edit that the next replay sends again, change with a replay or not at all:
    what was chosen is what is sent where the number is that of *item*. *edit*: that of the job.
    """
    if seen is None:
        return "the entry was removed meanwhile"
    if seen.status not in REPLAYABLE:
        return f"the entry is {seen.status}"
    if seen.status in DECIDED_BY_PEOPLE and seen.status is not chosen_as:
        return f"the entry is {seen.status} meanwhile"
    if item.replay and seen.replays + 1 != item.replay:
        return REPLAYED if edit else "the entry was replayed since the job chose it: replay it anew"
    if seen.replays >= most_replays:
        return f"it was replayed {seen.replays} times: only a person's own replay goes on"
    return ""


def numbered(item: JobItem, seen: EntrySnapshot, job: ReplayJob) -> JobItem:
    """*item* with the replay that begins now."""
    return item._replace(state=ItemState.BEGUN, replay=seen.replays + 1, round=job.round)


def ending(seen: EntrySnapshot | None, replay: int) -> ItemState | None:
    """The end of *replay* of an entry, as far as the ledger knows; None: not yet."""
    if seen is None:
        return ItemState.UNANSWERED
    if seen.replays > replay or seen.letter_replay >= replay:
        return ItemState.FAILED
    if seen.status is Status.RETRYING or not is_known(seen.status):
        return ItemState.PARKED if seen.parked else None
    if seen.status in {Status.RESOLVED, Status.SKIPPED, Status.COMPENSATED}:
        return ItemState.HANDLED
    return ItemState.UNANSWERED


def altered(job: ReplayJob, edit: JobEdit) -> bool:
    """True if *edit* is another one than *job* began with."""
    return edit.sha256 != job.edit or job.selection.entry_ids != (edit.entry_id,)


def owns(job: JobStatus, item: JobItem, entry: Entry) -> bool:
    """True if *entry* is left to the job that has *item*.

    That is so while the job has it, and for the decision about the failure of the job's replay.
    """
    if job not in ENDED and item.state not in ENDED_STATES:
        return True
    sent = item.replay > 0 and item.state not in {ItemState.REFUSED, ItemState.CHOSEN}
    return sent and entry.status is Status.FAILED and entry.replays == item.replay


def _joined(*said: str) -> str:
    return "; ".join(filter(None, said))


def _counted(job: ReplayJob, answer: ItemAnswer) -> ReplayJob:
    match answer.state:
        case ItemState.HANDLED:
            return replace(job, handled=job.handled + 1)
        case ItemState.FAILED:
            return replace(job, failed=job.failed + 1)
        case _:
            return replace(job, unanswered=job.unanswered + 1)


def _judged(job: ReplayJob, answer: ItemAnswer) -> ReplayJob:
    """*job* with an answer of its stage, halted if that was one failure too many."""
    mark = _MARKS.get(answer.state, "f")
    recent = (job.recent + mark)[-WINDOW:]
    job = replace(job, stage_answered=job.stage_answered + 1, recent=recent)
    running = job.status is JobStatus.RUNNING and job.left > 0  # else there is nothing to stop
    if not running or mark != "f" or not (said := _too_many(job)):
        return job
    return replace(job, status=JobStatus.HALTED, said=said)


def _too_many(job: ReplayJob) -> str:
    """Say why *job* halts, or nothing: a stage is judged by its size, or by its last answers."""
    failures = job.recent.count("f")
    if job.stage == 0 and job.plan.stages:
        return f"halted: the canary failed ({failures} of {job.stage_answered})"
    judged = min(stage_size(job), job.stage_sent + job.left, WINDOW)
    if failures <= job.plan.halt_share * judged:
        return ""
    return (
        f"halted: {failures} of the last {len(job.recent)} answers were failures,"
        f" more than {job.plan.halt_share:.0%} of {judged}"
    )


def _is_over(job: ReplayJob) -> bool:
    return job.stage_sent >= stage_size(job) and job.stage_answered >= job.stage_sent


_PROBE: Final = re.compile(re.escape(NEXT_PROBE) + r"[^)]*\)")


def first_line(job: ReplayJob, edit: JobEdit | None = None) -> HistoryLine:
    """The line of a job that was just stored, with the *edit* that it carries."""
    edited = f"edited: {edit.order.said} (SHA-256 {edit.sha256})" if edit else ""
    said = "; ".join(filter(None, (counted(job.total), job.note, job.said, edited)))
    return HistoryLine(at=job.created_at, who=job.created_by, what=job.status.value, detail=said)


def lines(before: ReplayJob, after: ReplayJob, now: datetime, by: str) -> list[HistoryLine]:
    """The line that a change from *before* to *after* adds to the history."""
    told: list[tuple[str, str]] = []
    if after.status is not before.status:
        told.append((_word(before, after), after.said or _counts(after)))
    elif after.stage > before.stage:
        told.append((f"stage {after.stage + 1}", _counts(after)))
    if after.status is before.status is JobStatus.RUNNING and _cause(after) != _cause(before):
        told.append(("waits" if after.said else "goes on", after.said))
    return [HistoryLine(at=now, who=by, what=what, detail=detail) for what, detail in told]


def _cause(job: ReplayJob) -> str:
    """The text of a job without the times of probes, each of which may fail."""
    return _PROBE.sub("", job.said)


def _word(before: ReplayJob, after: ReplayJob) -> str:
    if before.status is JobStatus.PROPOSED and after.status is not JobStatus.CANCELLED:
        return "approved"
    return "resumed" if after.round > before.round else after.status.value


def _counts(job: ReplayJob) -> str:
    bad = job.failed + job.unanswered
    return f"{job.sent} sent, {job.handled} handled, {bad} failed, {job.refused} refused"
