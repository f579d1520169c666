"""DryRun: what a replay job would send, told before it is begun; every door says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.choosing import in_statuses, mark_of
from angzarr.analysis.entry import Entry
from angzarr.analysis.job import JobPlan, Selection
from angzarr.analysis.job_rules import CHOSEN_BY_DEFAULT
from angzarr.analysis.ledger import Ledger
from angzarr.analysis.replay_order import AS_IT_IS, continued
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import replayable

#: Entries whose letters a dry run looks at, and which are counted before the question.
MOST_COUNTED: Final = 1000
AS_EVER: Final = JobPlan()


def found(ledger: Ledger, selection: Selection) -> Iterator[Entry]:
    """Return the entries that a job of *selection* would choose, those that failed last first."""
    if selection.entry_ids:
        for entry_id in selection.entry_ids:
            if (detail := ledger.open(entry_id)) and replayable(detail.entry):
                yield detail.entry
        return
    statuses = CHOSEN_BY_DEFAULT if selection.status is None else {selection.status}
    yield from in_statuses(ledger, selection.wanted, statuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a job would send and refuse, of the first entries looked at."""

    looked_at: int
    would_send: int
    refused: dict[str, int]
    sample: tuple[str, ...]
    #: There are more entries than were looked at.
    more: bool
    #: The same where the same entries were looked at.
    mark: str


def dry_run(
    replayer: Replayer, selection: Selection, most_replays: int, plan: JobPlan = AS_EVER
) -> DryRun:
    """Look at the letters of the entries that a job would choose; change nothing."""
    refused: Counter[str] = Counter()
    sendable: list[str] = []
    looked_at: list[str] = []
    more = False
    for entry in found(replayer.ledger, selection):
        if len(looked_at) == min(MOST_COUNTED, selection.limit or MOST_COUNTED):
            more = len(looked_at) != selection.limit
            break
        looked_at.append(entry.id)
        detail = replayer.ledger.open(entry.id)
        if detail is None:
            problem = "it was removed"
        else:
            last = AS_IT_IS if plan.original else detail.unanswered
            problem = replayer.problem(entry, detail.failure, continued(plan.order, last))
        if not problem and entry.replays >= most_replays:
            problem = f"it was replayed {entry.replays} times"
        if problem:
            refused[problem] += 1
        else:
            sendable.append(entry.id)
    return DryRun(
        looked_at=len(looked_at),
        would_send=len(sendable),
        refused=dict(refused),
        sample=tuple(sendable[:5]),
        more=more,
        mark=mark_of(looked_at),
    )
