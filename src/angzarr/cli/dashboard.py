"""angzarr dashboard: the HTTP API and the web pages, and the tokens of their callers (A5, A6)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import click

from angzarr.analysis.replay.skip import Skips
from angzarr.cli.application import LOG_LEVEL, load_application, open_behind
from angzarr.dead_letters.depth import QueueDepth
from angzarr.errors import ConfigurationError
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.dashboard import DashboardToken, Role
from angzarr.wiring.analysis_worker import (
    follow_clock,
    open_barred,
    open_compensator,
    open_editor,
    open_gathering,
    open_replayer,
)
from angzarr.wiring.dashboard import (
    open_fact_services,
    open_ordered_services,
    open_rejected_services,
)
from angzarr.wiring.operations import Operations
from angzarr.wiring.stores import extra, write_logs

if TYPE_CHECKING:
    from angzarr.dashboard.services import Services

_PACKAGES: Final = ("fastapi", "jinja2", "python_multipart", "uvicorn")


@click.group()
def dashboard() -> None:
    """Serve dead letters and breakers over HTTP: an API and web pages."""


@dashboard.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True)
@LOG_LEVEL
@click.pass_obj
def serve(app_name: str | None, host: str, port: int, log_level: int) -> None:
    """Serve until stopped (SIGTERM or Ctrl-C); other machines only to callers with tokens."""
    for package in _PACKAGES:
        with extra(package, "dashboard"):
            importlib.import_module(package)
    from angzarr.dashboard import server as serving
    from angzarr.dashboard.site import build_site

    ops = load_application(app_name)
    settings = ops.settings.dashboard
    serving.check_binding(settings, host)
    write_logs(log_level)
    with ExitStack() as doors:
        follow_clock(ops, doors)
        site = build_site(open_services(ops, doors), settings, hosts=[host])
        listener = doors.enter_context(serving.bind(host, port))
        at = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        way_in = f"/login?token={site.token}" if site.token else ""
        click.echo(f"serves http://{shown}:{at}{way_in}", err=True)
        serving.serve(site, listener)
    click.echo("stopped", err=True)


@dashboard.command()
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True)
def token(name: str, role: str) -> None:
    """Make a token for the caller NAME and print what the settings are to know of it."""
    from angzarr.dashboard.access import new_token

    made, known = new_token()
    try:
        DashboardToken(name=name, role=Role(role), sha256=known)
    except ValueError as error:
        msg = "a name has up to 64 letters, digits, dots, dashes, underscores and @"
        raise ConfigurationError(msg) from error
    click.echo(made)
    click.echo("# the token above is shown once; its hash goes under dashboard.tokens:", err=True)
    click.echo(f"- {{name: {name}, role: {role}, sha256: {known}}}", err=True)


def _open_unread(ops: Operations, doors: ExitStack) -> Callable[[], Mapping[str, QueueDepth]]:
    """Ask the dead-letter queues until *doors* close; return what tells what they said lately."""
    try:
        watch = ops.open_depth_watch()
    except ConfigurationError:  # a dashboard needs no place for letters
        return dict
    thread = PeriodicThread("angzarr-depths", lambda _stopping: watch)
    thread.start()
    doors.callback(thread.end)
    return watch.depths


def open_services(ops: Operations, doors: ExitStack) -> Services:
    """The services that people work with, each store open until *doors* close."""
    from angzarr.dashboard.ordered_handlers import Surveyor
    from angzarr.dashboard.services import Services

    def opened(store: Any) -> Any:
        doors.callback(store.close)
        return store

    ordered = open_ordered_services(ops, doors)
    replayer, barred = open_replayer(ops, doors), open_barred(ops, doors)
    return Services(
        ledger=replayer.ledger,
        groups=opened(ops.open_groups()),
        classifier=ops.dlq_classifier(lambda: 0.0),
        gathering=open_gathering(ops, replayer, doors),
        replayer=replayer,
        compensator=open_compensator(ops, replayer, barred),
        skips=Skips(replayer=replayer, barred=barred),
        editor=open_editor(ops, replayer),
        jobs=opened(ops.open_replay_jobs()),
        writes=opened(ops.open_writes()),
        brake=opened(ops.open_brake()),
        alerts=opened(ops.open_alerts()),
        webhooks=ops.open_webhooks,
        breakers=cache(ops.breaker_controls),
        told=ops.clearance().told,
        clock=replayer.clock,
        behind=open_behind(ops, doors),
        ordered=ordered,
        surveyor=opened(Surveyor(ordered, replayer.clock)),
        rejected=open_rejected_services(ops, doors),
        facts=open_fact_services(ops, replayer.clock, doors),
        acts=ops.acts,
        configurations=cache(lambda: opened(ops.open_configurations())),
        unread=_open_unread(ops, doors),
        most_replays=ops.settings.analysis.most_replays,
        approval_over=ops.settings.analysis.approvals.jobs_over,
        approves_edits=ops.settings.analysis.approvals.edits,
    )
