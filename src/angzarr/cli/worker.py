"""angzarr worker: several worker processes under one supervisor."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from angzarr.cli.supervision import supervise
from angzarr.errors import MissingExtra
from angzarr.runtime.chance import chance
from angzarr.supervisor.process_plan import SinglePlan

#: Options of `celery worker` that mean something else here, and what to say.
_OTHERS: Final = {
    "-c": "say --processes, and --threads for tasks at once in each",
    "--concurrency": "say --processes, and --threads for tasks at once in each",
    "-P": "each process runs one task at a time, or --threads; other pools: celery worker",
    "--pool": "each process runs one task at a time, or --threads; other pools: celery worker",
    "-D": "run it under a service manager",
    "--detach": "run it under a service manager",
}

#: Options of `celery worker` of one letter that take a value.
_VALUED: Final = ("-Q", "-X", "-I", "-l", "-f", "-O", "-c", "-P")


class WorkerCommand(click.Command):
    """A command that leaves the values of Celery's options alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Part -Qmail into -Q mail, or click would look for options of ours in its letters."""
        parted: list[str] = []
        for given in args:
            is_joined = given[:2] in _VALUED and len(given) > len("-Q")
            parted += [given[:2], given[2:]] if is_joined else [given]
        return super().parse_args(ctx, parted)


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """How many processors this process may use: a container's *limit* counts, rounded up."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    usable = usable or os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
        return max(1, min(usable, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or no limit
        return usable


def _range(_ctx: click.Context, _option: click.Parameter, given: str | None) -> Any:
    """Read ``LEAST,MOST``, in any order, as Celery does."""
    if given is None:
        return None
    try:
        least, most = sorted(map(int, given.split(",")))
    except ValueError:
        least, most = 0, 0
    if least < 1:
        msg = f"give two numbers of processes, from 1 up, such as 2,8; got {given!r}"
        raise click.BadParameter(msg)
    return least, most


@click.command(
    cls=WorkerCommand,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="How many processes; by default one for each core.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Tasks at once in each process, on threads; by default one task at a time.",
)
@click.option(
    "--coroutines",
    type=click.IntRange(1),
    help="Async tasks at once in each process, on one event loop.",
)
@click.option(
    "--sync-threads",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="With --coroutines: tasks at once that are not async.",
)
@click.option(
    "--autoscale",
    callback=_range,
    metavar="LEAST,MOST",
    help="Start more processes while messages wait, end some while they are idle.",
)
@click.option("-n", "--hostname", default="celery@%h", help="The name of the nodes; see below.")
@click.option("-B", "--beat", is_flag=True, help="Run celery beat as well, in one more process.")
@click.option("-s", "--schedule", "--schedule-filename", help="The file of beat's schedule.")
@click.option("--scheduler", help="The scheduler of beat.")
@click.option("-S", "--statedb", help="Where revoked tasks are kept; each process has a file.")
@click.option("--pidfile", type=click.Path(path_type=Path), help="Write the supervisor's pid here.")
@click.option("--pin-cpus", is_flag=True, help="Let each process run on one core only.")
@click.argument("others", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def worker(app_name: str | None, /, others: tuple[str, ...], **options: Any) -> None:
    """Run worker processes under one supervisor, until SIGTERM or Ctrl-C.

    All other options are those of `celery worker`: -Q, -X, -E, -l, -f, -O, --time-limit,
    --soft-time-limit, --max-tasks-per-child, --max-memory-per-child, --prefetch-multiplier and so
    on. Each process is a node: with -n shop@%h they are shop-1@host, shop-2@host, ….

    SIGHUP loads the app anew and replaces the processes one by one. SIGTTIN and SIGTTOU start one
    more and one less.
    """
    _refuse(app_name, others, options)
    with ExitStack() as doors:
        if (pidfile := options.pop("pidfile")) is not None:
            _write_pid(pidfile, doors)
        code = _supervise({"app": app_name, "others": others, **options}, doors)
    sys.exit(code)


def _refuse(app_name: str | None, others: tuple[str, ...], options: Mapping[str, Any]) -> None:
    if not app_name:
        msg = "no app was named: give it with -A module:app, or in the variable ANGZARR_APP"
        raise click.UsageError(msg)
    for given in others:
        name = given.partition("=")[0]
        if says := _OTHERS.get(name) or _OTHERS.get(name[:2] if name[1:2] != "-" else ""):
            msg = f"{name} is not an option of angzarr worker: {says}"
            raise click.UsageError(msg)
    if options["threads"] and options["coroutines"]:
        msg = "--threads and --coroutines exclude each other: give one of them"
        raise click.UsageError(msg)
    if options["coroutines"]:
        _refuse_coroutines()
    if options["processes"] and options["autoscale"]:
        msg = "--processes and --autoscale exclude each other: give one of them"
        raise click.UsageError(msg)


def _refuse_coroutines() -> None:
    if find_spec("greenlet") is None:
        raise click.UsageError(str(MissingExtra("greenlet", "coroutines")))
    if os.environ.get("USE_FAST_LOCALS"):
        msg = "--coroutines and USE_FAST_LOCALS exclude each other: unset that variable"
        raise click.UsageError(msg)


def _write_pid(path: Path, doors: ExitStack) -> None:
    """Write our pid; raises ClickException where another process that lives has written its own."""
    with suppress(OSError, ValueError):
        other = int(path.read_text())
        if other != os.getpid() and Path(f"/proc/{other}").exists():
            msg = f"{path} names process {other}, which runs: stop it, or name another --pidfile"
            raise click.ClickException(msg)
    try:
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        msg = f"--pidfile {path} cannot be written: {error.strerror}"
        raise click.ClickException(msg) from error
    doors.callback(path.unlink, missing_ok=True)


def _supervise(order: dict[str, Any], doors: ExitStack) -> int:
    from angzarr.adapters.structlog.logs import configure

    configure(logging.INFO)
    least, most = order.pop("autoscale") or (order.pop("processes") or cores(),) * 2
    single = SinglePlan(chance) if order["beat"] else None
    return supervise("angzarr.cli.worker_processes", order, (least, most), doors, single)
