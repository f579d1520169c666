"""angzarr dlq jobs: see, follow, pause, resume, cancel and approve replay jobs (spec A4, A5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import click

from angzarr.analysis.ledger.entry import counted
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.analysis.replay.job import ItemState, JobStatus, ReplayJob
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.job_view import (
    EditReview,
    job_detail_json,
    job_json,
    job_page_json,
    review,
)
from angzarr.cli.application import load_application
from angzarr.cli.dlq import job_view
from angzarr.cli.dlq.selection import SHORTEST_ID
from angzarr.cli.terminal import JSON, YES, print_json
from angzarr.wiring.analysis_worker import open_editor, open_replayer, person

#: Refused entries that `show` names.
_SHOWN: Final = 20


@click.group()
def jobs() -> None:
    """Replay jobs: how far they are, and what a person does with them."""


@contextmanager
def opened_jobs(app_name: str | None) -> Iterator[ReplayJobs]:
    """Open the replay jobs of an app for a block."""
    store = load_application(app_name).open_replay_jobs()
    try:
        yield store
    finally:
        store.close()


def found(store: ReplayJobs, beginning: str) -> ReplayJob:
    """The one job whose id is so, or begins so; refuses none and several in one sentence."""
    if exact := store.open_job(beginning):
        return exact
    jobs = store.get_jobs(prefix=beginning, limit=2).jobs if len(beginning) >= SHORTEST_ID else ()
    if not jobs:
        msg = f"there is no replay job {beginning!r}; `angzarr dlq jobs list` shows them"
        raise click.ClickException(msg)
    if len(jobs) > 1:
        msg = f"several jobs begin with {beginning!r}: give more of the id"
        raise click.UsageError(msg)
    return jobs[0]


def reviewed(app_name: str | None, store: ReplayJobs, job: ReplayJob) -> EditReview | None:
    """The review of the edit that *job* carries; None: it carries none."""
    if not job.edit:
        return None
    ops = load_application(app_name)
    with ExitStack() as doors:
        return review(open_editor(ops, open_replayer(ops, doors)), store, job)


def watch_job(store: ReplayJobs, job_id: str) -> None:
    """Follow a job to its end, and exit as it ended."""
    job = job_view.follow(lambda: found(store, job_id))
    raise SystemExit(job_view.exit_code(job))


@jobs.command("list")
@click.option("--status", "statuses", type=click.Choice([one.value for one in JobStatus]),
              multiple=True)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
@click.pass_obj
def list_(
    app_name: str | None, /, *, statuses: tuple[str, ...], limit: int, after: str, as_json: bool
) -> None:
    """List jobs, the newest first."""
    with opened_jobs(app_name) as store:
        try:
            wanted = [JobStatus(one) for one in statuses]
            page = store.get_jobs(wanted, limit=limit, after=after)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        print_json(job_page_json(page))
    else:
        job_view.print_page(page)


@jobs.command()
@click.argument("job")
@JSON
@click.pass_obj
def show(app_name: str | None, job: str, *, as_json: bool) -> None:
    """Show everything about JOB."""
    with opened_jobs(app_name) as store:
        one = found(store, job)
        history = store.job_history(one.id)
        refused = store.items(one.id, (ItemState.REFUSED,), limit=_SHOWN)
        edit = reviewed(app_name, store, one)
    if as_json:
        print_json(job_detail_json(one, history, refused, edit))
    else:
        job_view.print_detail(one, history, refused, edit)


@jobs.command()
@click.argument("job")
@click.pass_obj
def watch(app_name: str | None, job: str) -> None:
    """Follow JOB until it is over.

    Exits with 0 if all were handled, 1 if some were not, 3 if it halted, 4 if it was cancelled,
    5 if it waits for approval.
    """
    with opened_jobs(app_name) as store:
        watch_job(store, found(store, job).id)


def _verb(name: str, said: str, help_: str, can: str) -> None:
    """Add the command *name*, which calls the port's verb of that name."""

    @jobs.command(name, help=help_)
    @click.argument("job")
    @JSON
    @click.pass_obj
    def command(app_name: str | None, job: str, *, as_json: bool) -> None:
        with opened_jobs(app_name) as store:
            before = found(store, job)
            after = _steer(store, name)(before.id, by=person())
        if after is None:
            msg = f"job {job} is {before.status}: {can}"
            raise click.ClickException(msg)
        _tell(after, said, as_json=as_json)


def _asked(
    app_name: str | None, name: str, job: str, can: str, *, yes: bool, mark: str = ""
) -> ReplayJob:
    """Show *job* and ask; apply the port's verb *name* to the job shown, and return it then."""
    with opened_jobs(app_name) as store:
        shown = found(store, job)
        edit = reviewed(app_name, store, shown)
        if name == "approve":
            _check_edit(shown, edit, mark, yes=yes)
        if not yes:
            job_view.print_detail(shown, store.job_history(shown.id), (), edit, err=True)
            what = f"{name.capitalize()} this job of {counted(shown.total)}?"
            click.confirm(what, abort=True, err=True)
        after = _steer(store, name)(shown.id, by=person(), revision=_at(shown))
        if after is None and _at(shown) not in {None, found(store, shown.id).revision}:
            msg = f"job {job} changed meanwhile: look at it again"
            raise click.ClickException(msg)
    if after is None:
        msg = f"job {job} is {shown.status}: {can}"
        raise click.ClickException(msg)
    return after


def _check_edit(job: ReplayJob, edit: EditReview | None, mark: str, *, yes: bool) -> None:
    """Refuse to approve an edit that is not sent, or that was not confirmed as read."""
    if edit is None:
        if mark:
            raise click.UsageError("the job carries no edit: leave --edit out")
        return
    if edit.problem:
        raise click.ClickException(edit.problem)
    if mark and mark != edit.mark:
        msg = f"the edit of job {job.id} is another one: angzarr dlq jobs show {job.id}"
        raise click.ClickException(msg)
    if yes and not mark:
        msg = (
            f"job {job.id} carries an edit: read it (angzarr dlq jobs show {job.id}), and say which"
            " one with --edit"
        )
        raise click.ClickException(msg)


def _steer(store: ReplayJobs, name: str) -> Callable[..., ReplayJob | None]:
    steer: Callable[..., ReplayJob | None] = getattr(store, name)
    return steer


def _at(shown: ReplayJob) -> int | None:
    """The revision that must still hold; None: the job runs, and each step is one."""
    return None if shown.status is JobStatus.RUNNING else shown.revision


def _tell(job: ReplayJob, said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(job_json(job))
    else:
        click.echo(f"job {job.id} is {said}")


_verb("pause", "paused", "Let nothing more of JOB begin until it is resumed.",
      "only a running job can be paused")  # fmt: skip
_verb("resume", "running", "Go on with a paused or halted JOB, in a new canary.",
      "only a paused or halted job can be resumed")  # fmt: skip


@jobs.command()
@click.argument("job")
@YES
@JSON
@click.pass_obj
def cancel(app_name: str | None, job: str, *, yes: bool, as_json: bool) -> None:
    """Show and end JOB; what is under way is still answered."""
    can = "only an unfinished job can be cancelled"
    _tell(_asked(app_name, "cancel", job, can, yes=yes), "cancelled", as_json=as_json)


@jobs.command()
@click.argument("job")
@click.option("--edit", "mark", default="", metavar="MARK", help="Which edit you have read, if it"
              " carries one and --yes is given: `show` tells.")  # fmt: skip
@YES
@JSON
@click.pass_obj
def approve(app_name: str | None, job: str, *, mark: str, yes: bool, as_json: bool) -> None:
    """Show JOB, which somebody else proposed, and let it begin."""
    can = (
        "only a proposed job can be approved, and not by the person who proposed it;"
        " `local` may be anybody"
    )
    _tell(_asked(app_name, "approve", job, can, yes=yes, mark=mark), "approved", as_json=as_json)
