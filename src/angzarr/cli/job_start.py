"""Beginning a replay job from the command line: options, dry run, the question before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from angzarr.analysis.entry import Entry
from angzarr.analysis.job import DEFAULT_STAGES, JobPlan, Selection
from angzarr.analysis.job_rules import CHOSEN_BY_DEFAULT
from angzarr.analysis.ledger import LONGEST_PAGE, Ledger
from angzarr.analysis.replay_order import ReplayOrder
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import replayable

_F = TypeVar("_F", bound=Callable[..., Any])

#: Entries whose letters a dry run looks at, and which are counted before the question.
MOST_COUNTED: Final = 1000
_PERCENT: Final = 100.0

_OPTIONS: Final = (
    click.option(
        "--stages",
        default=",".join(map(str, DEFAULT_STAGES)),
        show_default=True,
        help="Entries replayed by the end of each stage; the first is the canary. none: no stages.",
    ),
    click.option("--rate", type=float, default=50.0, show_default=True,
                 help="Replays a second at most; 0: no limit."),
    click.option("--halt", default="20%", show_default=True,
                 help="Share of failures above which the job halts."),
    click.option("--in-flight", type=int, default=100, show_default=True,
                 help="Replays under way at a time, at most."),
    click.option("--to-queue", default="", help="Send to this queue, and not where it came from."),
    click.option("--to-handler", default="", help="Have this handler take it, and not its own."),
    click.option("--note", default="", help="Why, for the history."),
    click.option("--watch", is_flag=True, help="Follow the job until it is over."),
)  # fmt: skip


def planned(command: _F) -> _F:
    """Give *command* the options that make a plan."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def plan_of(stages: str, rate: float, halt: str, in_flight: int, order: ReplayOrder) -> JobPlan:
    """Return the plan that options name; a sentence for those that name none."""
    try:
        numbers = () if stages == "none" else tuple(int(one) for one in stages.split(","))
        share = float(halt.removesuffix("%")) / (_PERCENT if halt.endswith("%") else 1)
    except ValueError as error:
        msg = "write --stages like 1,5,25 (or none) and --halt like 20%"
        raise click.UsageError(msg) from error
    return JobPlan(
        stages=numbers,
        rate=rate or None,
        in_flight=in_flight,
        halt_share=share,
        to_queue=order.to_queue,
        to_handler=order.to_handler,
    )


def found(ledger: Ledger, selection: Selection) -> Iterator[Entry]:
    """Return the entries that a job of *selection* would choose, those that failed last first."""
    if selection.entry_ids:
        for entry_id in selection.entry_ids:
            if (detail := ledger.open(entry_id)) and replayable(detail.entry):
                yield detail.entry
        return
    after = ""
    while True:
        page = ledger.get_failed_events(
            selection.wanted, status=selection.status, limit=LONGEST_PAGE, after=after
        )
        for entry in page.entries:
            if entry.status is selection.status or entry.status in CHOSEN_BY_DEFAULT:
                yield entry
        if not (after := page.next):
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a job would send and refuse, of the first entries looked at."""

    looked_at: int
    would_send: int
    refused: dict[str, int]
    sample: tuple[str, ...]
    #: There are more entries than were looked at.
    more: bool


def dry_run(
    replayer: Replayer, selection: Selection, order: ReplayOrder, most_replays: int
) -> DryRun:
    """Look at the letters of the entries that a job would choose; change nothing."""
    refused: Counter[str] = Counter()
    sendable: list[str] = []
    looked_at, more = 0, False
    for entry in found(replayer.ledger, selection):
        if looked_at == min(MOST_COUNTED, selection.limit or MOST_COUNTED):
            more = looked_at != selection.limit
            break
        looked_at += 1
        detail = replayer.ledger.open(entry.id)
        if detail is None:
            continue
        problem = replayer.problem(entry, detail.failure, order)
        if not problem and entry.replays >= most_replays:
            problem = f"it was replayed {entry.replays} times"
        if problem:
            refused[problem] += 1
        else:
            sendable.append(entry.id)
    return DryRun(
        looked_at=looked_at,
        would_send=len(sendable),
        refused=dict(refused),
        sample=tuple(sendable[:5]),
        more=more,
    )
