"""The fork server of `angzarr worker`: it loads the app, and forks the processes that run it.

Each process runs `celery worker` itself, on a pool of ours: all that Celery's command does it does.
Started by `angzarr worker` only, with the descriptor of its line and the options as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from angzarr.errors import AngzarrError
from angzarr.supervisor.fork_server import ForkServer
from angzarr.supervisor.process_link import ProcessLink

#: How often beat looks whether its fork server is there.
_LOOKED_EVERY: Final = 0.25
_WORKER: Final = "angzarr.adapters.celery.worker"


def main(line: int, options: dict[str, Any]) -> int:
    """Serve until the supervisor hangs up; in a forked process, run it; return the exit code."""
    server = ForkServer(socket.socket(fileno=line))
    try:
        app = _load(options["app"])
        _check_options(app, options)
        server.say(hello=_hello(app))
    except (AngzarrError, click.ClickException) as error:
        shown = (
            error if isinstance(error, click.ClickException) else click.ClickException(f"{error}")
        )
        shown.show()
        return shown.exit_code
    link = server.serve()
    if link is None:
        return os.EX_OK
    return _run(app, link, options)


def _load(name: str) -> Any:
    from angzarr.cli.application import load_angzarr
    from angzarr.wiring.shared_imports import import_shared

    app = load_angzarr(name)
    app.loader.import_default_modules()
    app.finalize(auto=True)
    import_shared(app.ops.settings, app.ops.broker_url)
    return app


def _check_options(app: Any, options: dict[str, Any]) -> None:
    """Raise click's error for what `celery worker` would refuse in each process."""
    from celery.bin.base import CLIContext
    from celery.bin.worker import worker as command

    context = CLIContext(app=app, no_color=True, workdir=None)
    known = [*command.params]
    command.params.extend(app.user_options.get("worker", ()))
    try:
        command.make_context("worker", [*options["others"]], obj=context)
    finally:
        command.params[:] = known


def _hello(app: Any) -> dict[str, Any]:
    """What the supervisor needs to know of *app*."""
    settings = app.ops.settings
    grace = settings.soft_shutdown_timeout
    health = settings.health
    return {
        "grace": app.conf.worker_soft_shutdown_timeout if grace is None else grace.total_seconds(),
        "stalled_after": health.stalled_after.total_seconds(),
        "health": {"host": health.host, "port": health.port},
    }


def _run(app: Any, link: ProcessLink, options: dict[str, Any]) -> int:
    """Be process *link.number*: a node of its own; number 0 is beat."""
    from celery.bin.celery import celery

    from angzarr.adapters.celery.worker.runtime import runtime_of
    from angzarr.adapters.celery.worker.supervised import SupervisedProcess
    from angzarr.adapters.structlog.log_loss import LOG_LOSS
    from angzarr.wiring.telemetry import METRICS

    METRICS.join(link.order.get("metrics"))
    LOG_LOSS.renew()
    if link.number == 0:
        threading.Thread(target=_end_with_supervisor, args=(link,), daemon=True).start()
        arguments = [
            "beat",
            *_given(options, "schedule", "scheduler"),
            *log_options(options["others"]),
        ]
    else:
        if options["pin_cpus"]:
            usable = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {usable[(link.number - 1) % len(usable)]})
        runtime_of(app).stopping.renew()
        process = runtime_of(app).supervised = SupervisedProcess(link)
        process.sync_threads = options["sync_threads"]
        process.loop_blocked_after = app.ops.settings.health.loop_blocked_after
        pool, at_once = _pool_of(options)
        app.conf.worker_pool = f"{_WORKER}.{pool}"
        arguments = [
            "worker", "--hostname", node_name(options["hostname"], link.number),
            "--concurrency", str(at_once), *options["others"],
        ]  # fmt: skip
        if options["statedb"]:
            arguments += ["--statedb", f"{options['statedb']}.{link.number}"]
    sys.argv = ["celery", "-A", options["app"], *arguments]
    command = ["-q", "-A", options["app"], *arguments]
    try:
        celery.main(command, prog_name="celery", auto_envvar_prefix="CELERY")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return os.EX_OK


def _pool_of(options: dict[str, Any]) -> tuple[str, int]:
    """The class of the pool, and how many tasks it runs at once."""
    if options["coroutines"]:
        return "coroutines_pool:CoroutinesPool", options["coroutines"]
    if options["threads"]:
        return "limited_pools:ThreadsPool", options["threads"]
    return "limited_pools:SoloPool", 1


def _end_with_supervisor(link: ProcessLink) -> None:
    """End this process once its fork server is gone: another one begins its successor."""
    while link.say():
        time.sleep(_LOOKED_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)


def node_name(name: str, number: int) -> str:
    """The name of the node of process *number*: ``shop@%h`` is ``shop-2@%h`` for number 2."""
    before, at, host = name.partition("@")
    return f"{before}-{number}{at}{host}" if at else f"celery-{number}@{name}"


def _given(options: dict[str, Any], *names: str) -> list[str]:
    return [part for name in names if options[name] for part in (f"--{name}", options[name])]


def log_options(others: Sequence[str]) -> list[str]:
    """Those of *others* that say what to log where, which beat takes as well."""
    found: list[str] = []
    for at, given in enumerate(others):
        if given.partition("=")[0] in ("-l", "--loglevel", "-f", "--logfile"):
            found += [given] if "=" in given else others[at : at + 2]
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), json.loads(sys.argv[2])))
