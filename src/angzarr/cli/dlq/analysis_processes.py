"""The fork server of `angzarr dlq analyze --processes`: it loads the app, forks analysis workers.

Each process is an analysis worker like any other: they share the queues and the ledger. Started by
that command only, with the descriptor of its line and the options as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

import click

from angzarr.analysis.worker.worker import AnalysisHealth
from angzarr.cli.application import load_application
from angzarr.cli.dlq.main import domains_to_read
from angzarr.errors import AngzarrError
from angzarr.runtime.health_report import Report
from angzarr.runtime.processes import PeriodicThread
from angzarr.supervisor.fork_server import ForkServer
from angzarr.supervisor.process_link import ProcessLink
from angzarr.wiring.analysis_worker import open_worker, stopped_by_signal
from angzarr.wiring.operations import Operations
from angzarr.wiring.stores import write_logs
from angzarr.wiring.telemetry import METRICS

#: How often a process says how it does.
_SAID_EVERY: Final = timedelta(milliseconds=500)
#: Seconds in which a process ends its round: no statement and no fetch takes longer than five.
GRACE: Final = 20.0


def main(line: int, options: dict[str, Any]) -> int:
    """Serve until the supervisor hangs up; in a forked process, run it; return the exit code."""
    server = ForkServer(socket.socket(fileno=line))
    try:
        ops = load_application(options["app"])
        ops.check_analysis()
        domains = domains_to_read(options["domains"], ops.dead_letter_domains())
    except (AngzarrError, click.ClickException) as error:
        shown = (
            error if isinstance(error, click.ClickException) else click.ClickException(f"{error}")
        )
        shown.show()
        return shown.exit_code
    health = ops.settings.health
    server.say(
        hello={
            "grace": GRACE,
            "stalled_after": health.stalled_after.total_seconds(),
            "health": {"host": health.host, "port": health.port},
        }
    )
    link = server.serve()
    return os.EX_OK if link is None else _run(ops, link, domains, options["log_level"])


def _run(ops: Operations, link: ProcessLink, domains: list[str], log_level: int) -> int:
    """Be one analysis worker, until a signal or the end of the supervisor."""
    METRICS.join(link.order.get("metrics"))
    write_logs(log_level)
    with open_worker(ops, domains) as worker, stopped_by_signal(signal.SIGHUP) as stop:
        patience = ops.settings.health.stalled_after.total_seconds()
        health = AnalysisHealth(worker, stalled_after=patience, stopping=stop.is_set)
        with ExitStack() as doors:
            said = PeriodicThread("angzarr-report", lambda _: _AnalysisReports(link, health, stop))
            said.start()
            doors.callback(said.end)
            click.echo(f"{worker.name} reads {', '.join(domains)}", err=True)
            worker.run(stop)
    return os.EX_OK


class _AnalysisReports:
    """Says how this process does; a process whose supervisor is gone stops."""

    def __init__(self, link: ProcessLink, health: AnalysisHealth, stop: threading.Event) -> None:
        self._link = link
        self._health = health
        self._stop = stop

    def turn(self) -> timedelta:
        live, ready = self._health.live(), self._health.ready()
        listens = self._link.say(
            live=live.holds,
            ready=ready.holds,
            conditions={"live": _told(live), "ready": _told(ready)},
        )
        if not listens:
            self._stop.set()
        return _SAID_EVERY

    def leave(self) -> None:
        """End."""


def _told(report: Report) -> list[list[object]]:
    return [list(one) for one in report.conditions]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), json.loads(sys.argv[2])))
