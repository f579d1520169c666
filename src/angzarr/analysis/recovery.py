"""Recovery: when a group that is held is replayed by itself, as its cause is gone (A3, A4). Pure.

The rules say whether it is: a newer release runs, the dependency is well, what was missing is
there. That may be wrong, so what follows is a replay job with its canary, at most one for each
release that failed, and otherwise further and further apart while they go wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.evidence import Evidence
from angzarr.analysis.group import Group, GroupStatus
from angzarr.analysis.job import UNFINISHED, JobStatus, ReplayJob

#: Who stands in the history of such a job.
AUTOMATIC: Final = "automatic"
#: From one job of a group to the next, at first; doubled for each that went wrong in a row.
FIRST_PAUSE: Final = timedelta(minutes=10)
LONGEST_PAUSE: Final = timedelta(days=1)
#: Jobs of a group that are looked back at.
LOOKED_BACK: Final = 8

_NAMES: Final = uuid.UUID("2d5f6a0e-7d2f-5b8e-9c55-3b0c41a9f1d7")


class Trial(NamedTuple):
    """A job that may be begun: by its id, which all analysis workers agree on."""

    job_id: str
    #: The jobs before it, the last one last; empty: it hangs on none.
    before: tuple[str, ...] = ()


def considered(group: Group) -> bool:
    """Tell whether *group* has entries that are held, and no person said that he looks after it."""
    held = group.by_status.get(Status.HELD.value, 0)
    return held > 0 and group.status is not GroupStatus.ACKNOWLEDGED


def trial(entry: Entry, evidence: Evidence, number: int) -> Trial:
    """Return the job for the group of *entry*: one a release that failed, else its *number*-th."""
    if evidence.newer_release:
        return Trial(_id_of(entry.fingerprint, "after", entry.version))
    first = max(1, number - LOOKED_BACK)
    before = (_id_of(entry.fingerprint, str(n)) for n in range(first, number))
    return Trial(_id_of(entry.fingerprint, str(number)), tuple(before))


def may_begin(before: Sequence[ReplayJob], now: datetime) -> bool:
    """Tell whether another job may follow those *before* it; it takes over from one that halted."""
    if not before:
        return True
    last = before[-1]
    if last.status in UNFINISHED - {JobStatus.HALTED}:
        return False
    return now >= (last.ended_at or last.created_at) + pause_after(before)


def pause_after(before: Sequence[ReplayJob]) -> timedelta:
    """Return how long to wait after these jobs of a group: longer for each that went wrong."""
    wrong = 0
    for job in reversed(before):
        if went_well(job):
            break
        wrong += 1
    longer: timedelta = FIRST_PAUSE * 2**wrong
    return min(longer, LONGEST_PAUSE)


def went_well(job: ReplayJob) -> bool:
    """Tell whether *job* came to its end and nothing that it replayed failed again."""
    return job.status is JobStatus.DONE and not job.failed and not job.unanswered


def _id_of(*parts: str) -> str:
    return str(uuid.uuid5(_NAMES, "\x00".join(parts)))
