"""angzarr dlq: the analysis worker, and what a person can see and do (spec A5)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import click

from angzarr.cli.application import LOG_LEVEL, load_application
from angzarr.cli.dlq.actions import COMMANDS, compensate, edit
from angzarr.cli.dlq.alerts import alerts, brake
from angzarr.cli.dlq.entries import list_, show, stats
from angzarr.cli.dlq.explain import explain
from angzarr.cli.dlq.groups import group, groups
from angzarr.cli.dlq.jobs import jobs
from angzarr.cli.dlq.letters_import import import_
from angzarr.cli.dlq.letters_move import export, move
from angzarr.cli.dlq.replay import replay
from angzarr.cli.dlq.spool import spool
from angzarr.cli.supervision import supervise
from angzarr.dead_letters.names import check_domains
from angzarr.wiring.analysis_worker import open_worker, serve_health, stopped_by_signal
from angzarr.wiring.stores import write_logs
from angzarr.wiring.telemetry import METRICS

#: The fork server of `analyze --processes`.
_PROCESSES: Final = "angzarr.cli.dlq.analysis_processes"


@click.group()
def dlq() -> None:
    """Dead letters: read, understand, replay, move."""


for _command in (
    list_,
    show,
    groups,
    group,
    replay,
    edit,
    jobs,
    *COMMANDS,
    compensate,
    explain,
    brake,
    alerts,
    stats,
    move,
    export,
    import_,
    spool,
):
    dlq.add_command(_command)


@dlq.command()
@click.option("--domain", "domains", multiple=True, help="Read only this domain; repeatable.")
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Analysis workers that share the queues, under one supervisor.",
)
@LOG_LEVEL
@click.pass_obj
def analyze(app_name: str | None, domains: tuple[str, ...], processes: int, log_level: int) -> None:
    """Run the analysis worker until it is stopped (SIGTERM or Ctrl-C).

    With --processes, SIGHUP loads the app anew and replaces the processes one by one.
    """
    if processes > 1:
        write_logs(log_level)
        order = {"app": app_name, "domains": domains, "log_level": log_level}
        with ExitStack() as doors:
            code = supervise(_PROCESSES, order, (processes, processes), doors)
        sys.exit(code)
    ops = load_application(app_name)
    if ops.settings.health.port is not None:
        METRICS.begin()  # before anything measures
    ops.check_analysis()
    read = domains_to_read(domains, ops.dead_letter_domains())
    write_logs(log_level)
    with open_worker(ops, read) as worker, stopped_by_signal() as stop, ExitStack() as doors:
        serve_health(ops.settings.health, worker, stop, doors)
        click.echo(f"{worker.name} reads {', '.join(read)}", err=True)
        worker.run(stop)
    click.echo("stopped; what was in hand went back", err=True)


def domains_to_read(given: Sequence[str], known: Sequence[str]) -> list[str]:
    """The domains to read, each once: letters of one that is not *known* come to others."""
    check_domains(given)
    if unknown := [domain for domain in given if domain not in known]:
        msg = (
            f"--domain {unknown[0]}: this app has no such domain; it has {', '.join(known)}."
            " One that only events name, or whose handlers are in another service, is added with"
            " the setting dlq.domains"
        )
        raise click.UsageError(msg)
    return list(dict.fromkeys(given or known))
