"""angzarr fact prune: delete old facts, each only once a file has it (spec F1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import click

from angzarr.analysis.ledger.export import json_text
from angzarr.cli.application import load_application
from angzarr.cli.terminal import YES, Moment, moment
from angzarr.clock import SystemClock
from angzarr.facts.act import ActKind
from angzarr.facts.cost_budget import CostBudget
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import resolved_lines
from angzarr.facts.query import FactReader
from angzarr.wiring.analysis_worker import person

#: Facts that are one batch.
_AT_ONCE: Final = 1_000


@click.command()
@click.option("--before", type=Moment(), required=True, help="Older ones; 90d: than ninety days.")
@click.option("--export", "target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="A new file of JSON lines that gets them first.")  # fmt: skip
@click.option("--without-export", is_flag=True, help="Keep them nowhere.")
@YES
@click.pass_obj
def prune(
    app_name: str | None,
    /,
    *,
    before: datetime,
    target: Path | None,
    without_export: bool,
    yes: bool,
) -> None:
    """Delete facts that are older than a time, the oldest first.

    They are written to FILE first, a thousand at a time: none is deleted before the disk has it.
    One that is stopped leaves FILE with all that it deleted; go on with another FILE.
    """
    if (target is None) is not without_export:
        msg = "say --export FILE, or --without-export: one of the two"
        raise click.UsageError(msg)
    ops = load_application(app_name)
    _check_age(before, ops.settings.costs.named_budgets())
    with ExitStack() as doors:
        pruner = doors.enter_context(closing(ops.open_fact_pruner()))
        reader = doors.enter_context(closing(ops.open_fact_store()))
        count = pruner.count(before)
        if not count:
            click.echo(f"no fact is older than {moment(before)}")
            return
        if not yes:
            click.confirm(f"Delete {count:,} facts before {moment(before)}?", abort=True, err=True)
        export = doors.enter_context(_exported(reader, target)) if target else _nowhere
        what = f"facts before {before.isoformat()}, exported to {target or 'nowhere'}"
        with ops.acts.recording(ActKind.FACTS_PRUNED, what, by=person()) as act:
            deleted, where = 0, target and str(target)
            try:
                while some := pruner.prune_some(before, export, _AT_ONCE):
                    deleted += some
            finally:
                if deleted:
                    act.done({"before": before, "facts": deleted, "export": where})
    click.echo(f"deleted {deleted:,} facts" + (f"; {target} has them" if target else ""))


def _check_age(before: datetime, budgets: Sequence[CostBudget]) -> None:
    """Refuse to delete what is yet to come, and facts from which budgets are still added up."""
    now = SystemClock().now()
    if before > now:
        msg = "--before is in the future: name a time that is over, such as 90d"
        raise click.UsageError(msg)
    for budget in budgets:
        if before > (since := budget.since(now)):
            msg = (
                f"budget {budget.name} is added up from facts since {moment(since)}: name that time"
                " or an earlier one"
            )
            raise click.UsageError(msg)


def _nowhere(_facts: Sequence[Fact]) -> None:
    """Keep nothing."""


@contextmanager
def _exported(reader: FactReader, path: Path) -> Iterator[Callable[[Sequence[Fact]], None]]:
    """What writes facts to the new file *path*, for its owner alone, and waits for the disk."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        why = "it exists; name another" if isinstance(error, FileExistsError) else error.strerror
        msg = f"{path} cannot be written: {why}"
        raise click.ClickException(msg) from error
    with os.fdopen(handle, "wb") as file:
        yield lambda facts: _write(file, reader, facts, path)


def _write(file: BinaryIO, reader: FactReader, facts: Sequence[Fact], path: Path) -> None:
    try:
        file.writelines(json_text(line).encode() + b"\n" for line in resolved_lines(reader, facts))
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}; what it has was deleted, nothing else"
        raise click.ClickException(msg) from error
