"""angzarr dlq replay: send entries to their handlers again (spec A4, A5).

Beginning a replay job from the command line: options that make its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from angzarr.analysis.ledger.entry import Entry, counted
from angzarr.analysis.ledger.export import results_json
from angzarr.analysis.ledger.replay_options import (
    AS_IT_IS,
    STALE_AGAIN,
    Expectation,
    ReplayOrder,
    continued,
)
from angzarr.analysis.replay.job import DEFAULT_STAGES, JobPlan, JobStatus, Selection
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.job_view import MOST_COUNTED, dry_run, job_json
from angzarr.analysis.replay.replay import Replayer
from angzarr.cli.application import entry_ids, load_application
from angzarr.cli.dlq import job_view
from angzarr.cli.dlq.configuration import (
    CONFIG,
    MOST_LOOKED_AT,
    chosen_versions,
    tell_differences,
)
from angzarr.cli.dlq.entries import print_results
from angzarr.cli.dlq.jobs import watch_job
from angzarr.cli.dlq.selection import STATUS, filter_of, filtered, find, over, status_of
from angzarr.cli.terminal import JSON, YES, console, print_json, safe
from angzarr.dead_letters.letter import Reason
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import open_barred, open_replayer, person
from angzarr.wiring.operations import Operations

if TYPE_CHECKING:
    from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs

#: The most that --now sends: it has no canary, and the person waits.
_MOST_NOW = 1000
_WAITS = (
    "by analysis.approvals.edits a second person approves where and how a replay is sent: leave"
    " --now and --force out, and it is proposed as a job"
)


_F = TypeVar("_F", bound=Callable[..., Any])

_PERCENT: Final = 100.0

_ORDERS: Final = (
    click.option("--to-queue", default="", help="Send to this queue, and not where it came from."),
    click.option("--to-handler", default="", help="Have this handler take it, and not its own."),
    click.option("--fresh-sequence", is_flag=True,
                 help="Let a command expect no sequence any more: decide it on what is there now."),
    CONFIG,
)  # fmt: skip
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
    *_ORDERS,
    click.option("--note", default="", help="Why, for the history."),
    click.option("--watch", is_flag=True, help="Follow the job until it is over."),
)  # fmt: skip


def planned(command: _F) -> _F:
    """Give *command* the options that make a plan."""
    return _with(command, _OPTIONS)


def ordered(command: _F) -> _F:
    """Give *command* the options that send a replay elsewhere, or otherwise."""
    return _with(command, _ORDERS)


def order_of(to_queue: str, to_handler: str, *, fresh_sequence: bool) -> ReplayOrder:
    """The order that options name."""
    sequence = Expectation.FRESH_SEQUENCE if fresh_sequence else Expectation.AS_IS
    return ReplayOrder(to_queue=to_queue, to_handler=to_handler, sequence=sequence)


def _with(command: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


def plan_of(stages: str, rate: float, halt: str, in_flight: int, order: ReplayOrder) -> JobPlan:
    """The plan that options name; a sentence for those that name none."""
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
        sequence=order.sequence,
        config=order.config,
    )


@click.command()
@click.argument("entries", nargs=-1, shell_complete=entry_ids)
@filtered
@STATUS
@click.option("--limit", type=click.IntRange(1), help="So many at most: the oldest failures.")
@click.option("--now", is_flag=True, help="Send them from here, at once, without a job.")
@click.option("--force", is_flag=True, help="Also past the cap of replays; for --now or one entry.")
@click.option("--original", is_flag=True, help="Leave an edit out that got no answer.")
@planned
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed.")
@YES
@JSON
@click.pass_obj
def replay(
    app_name: str | None,
    /,
    entries: tuple[str, ...],
    *,
    status: str | None,
    limit: int | None,
    now: bool,
    force: bool,
    original: bool,
    stages: str,
    rate: float,
    halt: str,
    in_flight: int,
    to_queue: str,
    to_handler: str,
    fresh_sequence: bool,
    config: str,
    note: str,
    watch: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send ENTRIES, or all that a filter finds, on their road again.

    One entry is sent at once. More become a replay job, which the analysis worker carries out: a
    canary first, halted by itself where too many fail again. So does one that is sent elsewhere,
    where analysis.approvals.edits asks for a second person.

    Exits with 1 if one that was sent from here could not be replayed; with --watch as
    `angzarr dlq jobs watch` does.
    """
    if bool(entries) == bool(status or any(wanted.values())):
        raise click.UsageError("say which: either entries by id, or a filter such as --group")
    ops = load_application(app_name)
    order = order_of(to_queue, to_handler, fresh_sequence=fresh_sequence)
    order = replace(order, config=chosen_versions(ops, config))
    plan = replace(plan_of(stages, rate, halt, in_flight, order), original=original)
    with ExitStack() as doors:
        replayer = open_replayer(ops, doors, shows=False)
        jobs = ops.open_replay_jobs()
        doors.callback(jobs.close)
        if why := replayer.targets.unknown(order):
            raise click.UsageError(why)
        ids = tuple(find(replayer.ledger, one).id for one in dict.fromkeys(entries))
        selection = Selection(
            wanted=filter_of(wanted), status=status_of(status), entry_ids=ids, limit=limit
        )
        waits = bool(order) and ops.settings.analysis.approvals.edits
        if waits and (now or force):
            raise click.UsageError(_WAITS)
        if (now or len(ids) == 1) and not waits:
            chosen = _chosen(replayer, jobs, selection)
            if len(ids) != 1 and not dry_run and (why := open_barred(ops, doors)()):
                msg = f"{why}, or replay one entry by its id"
                raise click.ClickException(msg)
            if now:
                _check(len(chosen), ops.settings.analysis.approvals.jobs_over)
            cap = None if force else ops.settings.analysis.most_replays
            _tell_versions(ops, replayer, chosen, order)
            _send(
                replayer, chosen, order, cap,
                original=original, dry_run=dry_run, yes=yes, as_json=as_json,
            )  # fmt: skip
        elif dry_run:
            _tell_dry_run(ops, jobs, replayer, selection, plan, as_json=as_json)
        elif force:
            raise click.UsageError(
                "--force is for one entry, or with --now: a job keeps to the cap"
            )
        else:
            if order.config:
                looked = _chosen(replayer, jobs, replace(selection, limit=MOST_LOOKED_AT))
                _tell_versions(ops, replayer, looked, order)
            ask = "" if yes else _question(jobs, selection, order)
            _begin(ops, jobs, selection, plan, note=note, ask=ask, watch=watch, as_json=as_json)


# -- at once ---------------------------------------------------------------------------------


def _chosen(replayer: Replayer, jobs: ReplayJobs, selection: Selection) -> list[Entry]:
    named = selection.entry_ids
    if named and len(named) <= (selection.limit or len(named)):
        # also those that cannot be replayed: their person is told why
        opened = (replayer.ledger.open(one) for one in named)
        return [detail.entry for detail in opened if detail]
    return [one.entry for one in jobs.would_choose(selection, limit=_MOST_NOW + 1)]


def _tell_versions(
    ops: Operations, replayer: Replayer, entries: Sequence[Entry], order: ReplayOrder
) -> None:
    """Tell how the versions of *order* differ from what the first *entries* are pinned to."""
    if order.config:
        opened = (replayer.ledger.open(one.id) for one in entries[:MOST_LOOKED_AT])
        letters = [one.unanswered.letter or one.failure for one in opened if one]
        tell_differences(ops, letters, order.config)


def _check(count: int, approval_over: int | None) -> None:
    """Refuse more entries than may be sent without a canary, or without a second person."""
    if approval_over is not None and count > max(approval_over, 1):
        msg = (
            f"more than {approval_over} entries (analysis.approvals.jobs_over): leave --now out,"
            " and a second person approves the job"
        )
        raise click.UsageError(msg)
    if count > _MOST_NOW:
        msg = f"--now sends {_MOST_NOW} entries at most: give a --limit, or leave it out for a job"
        raise click.UsageError(msg)


def _send(
    replayer: Replayer,
    chosen: Sequence[Entry],
    order: ReplayOrder,
    cap: int | None,
    *,
    original: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if chosen and not dry_run and not yes:
        click.confirm(f"{_hint(chosen, order)}Replay {counted(len(chosen))}?", abort=True, err=True)
    results: list[tuple[Entry, str]] = []
    try:
        for one in chosen:
            problem = over(one, cap) or _replay(
                replayer, one, order, original=original, dry_run=dry_run
            )
            results.append((one, problem))
    finally:  # who is stopped half-way needs to know what was sent
        if as_json:
            print_json(results_json(results))
        else:
            print_results(results, done="would be replayed" if dry_run else "replayed")
    if any(problem for _, problem in results):
        raise SystemExit(1)


def _hint(chosen: Sequence[Entry], order: ReplayOrder) -> str:
    """The hint for a person who sends stale commands as they are."""
    if order.sequence is not Expectation.AS_IS:
        return ""
    stale = any(one.reason == Reason.SEQUENCE_MISMATCH for one in chosen)
    return f"{STALE_AGAIN} (--fresh-sequence).\n" if stale else ""


def _replay(
    replayer: Replayer, entry: Entry, order: ReplayOrder, *, original: bool, dry_run: bool
) -> str:
    detail = replayer.ledger.open(entry.id)
    if detail is None:
        return "the entry was removed meanwhile"
    if dry_run:
        last = AS_IT_IS if original else detail.unanswered
        return replayer.problem(entry, detail.failure, continued(order, last))
    try:
        return replayer.replay(entry, detail.failure, by=person(), order=order, original=original)
    except BrokerUnavailable as error:
        return f"begun, the analysis worker sends it when the broker is back: {error}"
    except PayloadStoreUnavailable as error:
        return f"not begun, replay it when its payload can be had: {error}"


# -- as a job --------------------------------------------------------------------------------


def _question(jobs: ReplayJobs, selection: Selection, order: ReplayOrder) -> str:
    most = MOST_COUNTED
    found = jobs.would_choose(selection, limit=most + 1)
    count = len(found) if len(found) > most else sum(not one.job for one in found)
    many = f"more than {most} entries" if count > most else counted(count)
    hint = _hint([one.entry for one in found], order)
    return f"{hint}Replay {many} in a job?" if count else ""


def _begin(
    ops: Operations,
    store: SqlReplayJobs,
    selection: Selection,
    plan: JobPlan,
    *,
    note: str,
    ask: str,
    watch: bool,
    as_json: bool,
) -> None:
    if ask:
        click.confirm(ask, abort=True, err=True)
    job = store.begin(
        selection,
        plan,
        by=person(),
        note=note,
        approval_over=ops.settings.analysis.approvals.jobs_over,
        redirects_wait=ops.settings.analysis.approvals.edits,
    )
    if as_json:
        print_json(job_json(job))
    elif not job.total:
        click.echo(printable(f"no entries to replay{f': {job.said}' if job.said else ''}"))
    else:
        click.echo(printable(f"job {job.id}: {job_view.line_of(job)}; {job_view.status_of(job)}"))
        if not watch and job.status is JobStatus.RUNNING:
            click.echo(f"the analysis worker carries it out: angzarr dlq jobs watch {job.id}")
    if watch and job.total:
        watch_job(store, job.id)


def _tell_dry_run(
    ops: Operations,
    jobs: ReplayJobs,
    replayer: Replayer,
    selection: Selection,
    plan: JobPlan,
    *,
    as_json: bool,
) -> None:
    most_replays = ops.settings.analysis.most_replays
    told = dry_run(jobs, replayer, selection, most_replays, plan)
    if as_json:
        print_json(asdict(told))
        return
    out = console()
    of = f" of the first {told.looked_at}" if told.more else ""
    out.print(f"{told.would_send}{of} would be replayed, {sum(told.refused.values())} refused")
    for reason, count in sorted(told.refused.items(), key=lambda one: -one[1]):
        out.print(safe(f"  {count}: {reason}"))
    for entry_id in told.sample:
        out.print(safe(f"  e.g. {entry_id}"))
