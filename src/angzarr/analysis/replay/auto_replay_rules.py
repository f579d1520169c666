"""Recovery: when a group that is held is replayed by itself, as its cause is gone (A3, A4). Pure.

The rules say whether it is: a newer release runs, the dependency is well, what was missing is
there. That may be wrong, so what follows is a replay job with its canary, at most one for each
newer release, and otherwise further and further apart while they go wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.group import Group, GroupStatus
from angzarr.analysis.ledger.transition import is_judged_here
from angzarr.analysis.replay.job import ENDED, JobStatus, ReplayJob

#: Who stands in the history of such a job, and what its id begins with.
AUTOMATIC: Final = "automatic"
_PREFIX: Final = "auto-"
#: From one job of a group to the next, at first; doubled for each that went wrong in a row.
FIRST_PAUSE: Final = timedelta(minutes=10)
LONGEST_PAUSE: Final = timedelta(days=1)
#: How long a group is left to a person after that person's job.
LEFT_TO_PEOPLE: Final = timedelta(days=1)
#: Entries of a group that are judged, each of another class or release.
SAMPLES: Final = 3

_NAMES: Final = uuid.UUID("2d5f6a0e-7d2f-5b8e-9c55-3b0c41a9f1d7")


def is_automatic(job_id: str) -> bool:
    """Tell whether a job of this id was begun by itself."""
    return job_id.startswith(_PREFIX)


def considered(group: Group) -> bool:
    """Tell whether *group* has entries that are held, and no person said that he looks after it."""
    held = group.by_status.get(Status.HELD.value, 0)
    return held > 0 and group.status is not GroupStatus.ACKNOWLEDGED


def samples(held: Iterable[Entry], most_replays: int) -> list[Entry]:
    """Return the entries to judge a group by: of each class and release the one that failed last.

    One that was replayed as often as it may be says nothing of the others, and one of a class that
    only newer workers know is theirs to judge.
    """
    found: dict[tuple[object, str], Entry] = {}
    for entry in held:
        if entry.replays < most_replays and is_judged_here(entry):
            found.setdefault((entry.failure_class, entry.version), entry)
    return list(found.values())[:SAMPLES]


def of_group(jobs: Iterable[ReplayJob], entry: Entry) -> list[ReplayJob]:
    """Return which of *jobs* may be about *entry*'s group, the last one last."""
    found = [
        job
        for job in jobs
        if job.selection.wanted.fingerprint in {None, entry.fingerprint}
        and entry.handler_name in job.handlers
    ]
    return sorted(found, key=lambda job: (job.created_at, job.id))


def left_to_people(jobs: Iterable[ReplayJob], now: datetime) -> bool:
    """Tell whether a person replays the group, or did so a short while ago."""
    return any(
        job.created_by != AUTOMATIC
        and (job.ended_at is None or now < job.ended_at + LEFT_TO_PEOPLE)
        for job in jobs
    )


def job_id_for(entry: Entry, before: Sequence[ReplayJob], newer_release: str = "") -> str:
    """Return the id of the job for entries like *entry*, which all analysis workers agree on.

    One for each *newer_release*, where that is the cause; else one behind the job *before*.
    """
    last = before[-1].id if before else ""
    cause = ("under", newer_release) if newer_release else ("behind", last)
    parts = (entry.fingerprint, entry.failure_class or "", *cause)
    return f"{_PREFIX}{uuid.uuid5(_NAMES, chr(0).join(parts))}"


def may_begin(before: Sequence[ReplayJob], now: datetime, newer_release: str = "") -> bool:
    """Tell whether another job may follow those *before* it; it takes over from one that halted.

    A *newer_release* need not wait for the pause: nothing was tried with it.
    """
    if not before:
        return True
    last = before[-1]
    if last.status not in ENDED | {JobStatus.HALTED}:
        return False
    return bool(newer_release) or now >= (last.ended_at or last.created_at) + pause_after(before)


def pause_after(before: Sequence[ReplayJob]) -> timedelta:
    """Return how long to wait after these jobs of a group: longer for each that went wrong."""
    wrong = 0
    for job in reversed(before):
        if went_well(job):
            break
        wrong += 1
    longer: timedelta = FIRST_PAUSE * 2 ** min(wrong, 30)
    return min(longer, LONGEST_PAUSE)


def went_well(job: ReplayJob) -> bool:
    """Tell whether *job* came to its end, handled something and nothing failed again."""
    ended = job.status is JobStatus.DONE and job.handled > 0
    return ended and not job.failed and not job.unanswered
