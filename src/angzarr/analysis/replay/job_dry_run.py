"""DryRun: what a replay job would send, told before it is begun; every door says the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.ledger.replay_options import AS_IT_IS, continued
from angzarr.analysis.replay.bulk_actions import mark_of
from angzarr.analysis.replay.job import Candidate, JobPlan, ReplayJobs, Selection
from angzarr.analysis.replay.replayer import Replayer

#: Entries whose letters a dry run looks at, and which are counted before the question.
MOST_COUNTED: Final = 1000
AS_EVER: Final = JobPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a job would send and refuse, of the first entries looked at: the oldest failures."""

    looked_at: int
    would_send: int
    refused: dict[str, int]
    sample: tuple[str, ...]
    #: There are more entries than were looked at.
    more: bool
    #: The same where the job would have the same of those entries.
    mark: str


def dry_run(
    jobs: ReplayJobs,
    replayer: Replayer,
    selection: Selection,
    most_replays: int,
    plan: JobPlan = AS_EVER,
) -> DryRun:
    """Look at the letters of the entries that a job would choose; change nothing."""
    refused: Counter[str] = Counter()
    sendable: list[str] = []
    found = jobs.would_choose(selection, limit=MOST_COUNTED + 1)
    looked_at = found[:MOST_COUNTED]
    for one in looked_at:
        if problem := _problem(replayer, one, most_replays, plan):
            refused[problem] += 1
        else:
            sendable.append(one.entry.id)
    return DryRun(
        looked_at=len(looked_at),
        would_send=len(sendable),
        refused=dict(refused),
        sample=tuple(sendable[:5]),
        more=len(found) > MOST_COUNTED,
        mark=mark_of(one.entry.id for one in looked_at if not one.job),
    )


def _problem(replayer: Replayer, one: Candidate, most_replays: int, plan: JobPlan) -> str:
    """Return why a job would not send an entry, or an empty string."""
    if one.job:
        return f"it is in job {one.job}, which is not finished"
    entry = one.entry
    if (detail := replayer.ledger.open(entry.id)) is None:
        return "it was removed"
    last = AS_IT_IS if plan.original else detail.unanswered
    if why := replayer.problem(entry, detail.failure, continued(plan.order, last)):
        return why
    if entry.replays >= most_replays:
        return f"it was replayed {entry.replays} times"
    return ""
