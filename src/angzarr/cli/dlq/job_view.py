"""Replay jobs for people: tables, and a progress bar that follows one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from angzarr.analysis.ledger.entry import HistoryLine, counted
from angzarr.analysis.replay.edit import Sides
from angzarr.analysis.replay.job import JobItem, JobPage, JobStatus, ReplayJob, Selection
from angzarr.analysis.replay.job_view import EditReview
from angzarr.cli.terminal import SHORT_ID, console, draws, moment, safe

#: Seconds between two looks at a job that is followed.
LOOK: Final = 0.5
#: Entries of a job that are named.
_NAMED: Final = 20

_COLOURS: Final = {
    JobStatus.RUNNING: "cyan",
    JobStatus.PAUSED: "yellow",
    JobStatus.PROPOSED: "yellow",
    JobStatus.HALTED: "bold red",
    JobStatus.DONE: "green",
}
#: Nothing more happens to a job in one of these unless somebody does something.
_OVER: Final = frozenset(
    {JobStatus.DONE, JobStatus.HALTED, JobStatus.CANCELLED, JobStatus.PROPOSED}
)
_CODES: Final = {JobStatus.HALTED: 3, JobStatus.CANCELLED: 4, JobStatus.PROPOSED: 5}


def exit_code(job: ReplayJob) -> int:
    """The code 0: all were handled, 1: some were not, 3: halted, 4: cancelled, 5: not approved."""
    if job.status is JobStatus.DONE:
        return int(job.handled < job.total)
    return _CODES.get(job.status, 0)


def print_page(page: JobPage) -> None:
    """Print a page of jobs."""
    out = console()
    if not page.jobs:
        out.print("no replay jobs")
        return
    table = Table(Column("job", no_wrap=True), "begun", "by", "of", "status", "progress")
    for job in page.jobs:
        colour = _COLOURS.get(job.status, "")
        table.add_row(
            safe(job.id[:SHORT_ID]), safe(moment(job.created_at)), safe(job.created_by),
            safe(_chosen(job.selection)), safe(status_of(job), colour), safe(line_of(job)),
        )  # fmt: skip
    out.print(table)
    if page.next:
        out.print(safe(f"more: --after {page.next}"), soft_wrap=True)


def print_detail(
    job: ReplayJob,
    history: Sequence[HistoryLine],
    refused: Sequence[JobItem],
    edit: EditReview | None = None,
    *,
    err: bool = False,
) -> None:
    """Print everything about a job."""
    out = console(err=err)
    plan = job.plan
    rate = "no limit" if plan.rate is None else f"{plan.rate:g} a second"
    stages = ", ".join(map(str, (*plan.stages, "all")))
    told = {
        "job": job.id,
        "status": status_of(job),
        "entries": line_of(job),
        "plan": f"stages {stages}; {rate}; {plan.in_flight} in flight; halts over"
        f" {plan.halt_share:.0%}",
        "stage": f"{job.stage + 1} of {len(plan.stages) + 1}, round {job.round}",
        "sent to": str(plan.order),
        "edits": "those without an answer are left out" if plan.original else "",
        "chosen": _chosen(job.selection),
        "handlers": ", ".join(job.handlers),
        "begun": f"{moment(job.created_at)} by {job.created_by}",
        "approved": job.approved_by,
        "ended": moment(job.ended_at),
        "note": job.note,
    }
    for name, value in told.items():
        if value:
            out.print(safe(f"{name:<9} {value}"))
    if edit:
        _print_edit(out, job, edit)
    for line in history:
        out.print(safe(f"  {moment(line.at)}  {line.who}  {line.what}  {line.detail}"))
    for one in refused:
        out.print(safe(f"  refused {one.entry_id[:12]}: {one.reason}"))


def _chosen(selection: Selection) -> str:
    """The entries that a job was to replay, in one line."""
    if selection.entry_ids:
        shown = ", ".join(one[:SHORT_ID] for one in selection.entry_ids[:_NAMED])
        more = len(selection.entry_ids) - _NAMED
        return f"entries {shown}" + (f" and {more} more" if more > 0 else "")
    wanted = asdict(selection.wanted) | {"status": selection.status, "at most": selection.limit}
    return ", ".join(
        f"{name.replace('_', ' ')} {_said(value)}"
        for name, value in wanted.items()
        if value not in (None, "")
    )


def _said(value: object) -> str:
    return moment(value) if isinstance(value, datetime) else str(value)


def _print_edit(out: Console, job: ReplayJob, edit: EditReview) -> None:
    out.print(safe(f"{'edit':<9} of {edit.entry_id[:12]}, SHA-256 {job.edit}"))
    for change in edit.changes:
        out.print(safe(f"  {change}"))
    for line in whole_lines(edit.whole):
        out.print(safe(f"  {line}"))
    if edit.problem:
        out.print(safe(f"  {edit.problem}", "red"))
    elif job.status is JobStatus.PROPOSED:
        approve = f"angzarr dlq jobs approve {job.id} --edit {edit.mark}"
        out.print(safe(f"  who has read all of it: {approve}"))


def whole_lines(whole: Sides | None) -> Iterator[str]:
    """Yield all data before an edit and after, where its changes do not tell all."""
    if whole is not None:
        yield "not all of that is told here; the whole:"
        for name, data in whole._asdict().items():
            yield f"{name}:"
            yield from json.dumps(data, indent=2, ensure_ascii=False).splitlines()


def line_of(job: ReplayJob) -> str:
    """The progress of a job in one line."""
    counts = {
        "sent": job.sent,
        "handled": job.handled,
        "failed": job.failed,
        "unanswered": job.unanswered,
        "refused": job.refused,
        "left": job.left,
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return counted(job.total) + (f": {told}" if told else "")


def status_of(job: ReplayJob) -> str:
    """The status of a job and its reason; some reasons begin with the status."""
    why = job.said.removeprefix(f"{job.status}: ")
    return f"{job.status}: {why}" if why else str(job.status)


def follow(
    look: Callable[[], ReplayJob], sleep: Callable[[float], object] = time.sleep
) -> ReplayJob:
    """Show how a job goes on until it is over; return it as it is then."""
    out = Console(highlight=False)
    show = (lambda jobs: _with_bar(out, jobs)) if draws(out) else _lines
    return show(_looks(look, sleep))


def _looks(look: Callable[[], ReplayJob], sleep: Callable[[float], object]) -> Iterator[ReplayJob]:
    while True:
        job = look()
        yield job
        if job.status in _OVER:
            return
        sleep(LOOK)


def _with_bar(out: Console, jobs: Iterable[ReplayJob]) -> ReplayJob:
    columns = (TextColumn("{task.fields[status]}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[line]}"))  # fmt: skip
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("", status="", line="")
        for job in jobs:
            bar.update(
                task,
                total=job.total,
                completed=job.answered + job.refused,
                status=safe(job.status).plain,
                line=safe(f"{job.failed + job.unanswered} failed  {job.said}").markup,
            )
    out.print(safe(f"{line_of(job)}; {status_of(job)}"))
    return job


def _lines(jobs: Iterable[ReplayJob]) -> ReplayJob:
    """Print a line each time something changed, for logs."""
    last = ""
    for job in jobs:
        line = f"stage {job.stage + 1}: {line_of(job)}; {status_of(job)}"
        if line != last:
            console().print(safe(line))
        last = line
    return job
