"""The real servers the tests run against; `python3 tools/servers --help` lists the commands.

Uses the standard library alone, since it runs before any environment exists. Never stops
anything it did not start.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time

import chart_tools
import fleet
import packages
import processes
import state
from server import CannotStart


def main() -> int:
    """Do what the command line asks and return the exit code."""
    arguments = _parser().parse_args()
    try:
        return int(arguments.action(arguments))
    except CannotStart as problem:
        print(f"servers: {problem}", file=sys.stderr)
        return 1


def _up(_: argparse.Namespace) -> int:
    began = time.monotonic()
    problems = fleet.up()
    for one in state.read().values():
        print(f"  {one.name} ({one.source}): {' '.join(one.addresses.values())}")
    for name, problem in problems.items():
        print(f"  {name} is missing: {problem}", file=sys.stderr)
    print(f"  servers up in {time.monotonic() - began:.1f} s")
    return 1 if problems else 0


def _down(_: argparse.Namespace) -> int:
    fleet.down()
    return 0


def _env(_: argparse.Namespace) -> int:
    for variable, value in fleet.environment().items():
        print(f"export {variable}={shlex.quote(value)}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Run a command with the servers up and stop those that were not up before."""
    before = set(state.read())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
    try:
        if _up(arguments) and _servers_required():
            return 1
        return _wait(subprocess.Popen(arguments.command, env=os.environ | fleet.environment()))
    except KeyboardInterrupt:
        return 130
    finally:
        fleet.down(set(fleet.SERVERS) - before)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for *child*; when we are told to end, so is it, with all that it started."""
    try:
        return child.wait()
    except BaseException:
        processes.stop(processes.family(processes.adopt(child.pid)), patience=30)
        raise


def _servers_required() -> bool:
    """Say whether a missing server ends the run; else its tests are skipped (tests/conftest.py)."""
    return os.environ.get("CI") == "true" or os.environ.get("ANGZARR_REQUIRE_SERVERS") == "1"


def _browser(_: argparse.Namespace) -> int:
    """Have the browser that drives the pages; without root a laptop goes without it."""
    try:
        packages.ensure("chromium", "chromium")
    except CannotStart as problem:
        print(f"  chromium is missing: {problem}", file=sys.stderr)
        return 1 if _servers_required() else 0
    return 0


def _chart_tools(_: argparse.Namespace) -> int:
    """Have what the Helm chart is checked with; a laptop without Go goes without it."""
    try:
        chart_tools.ensure()
    except CannotStart as problem:
        print(f"  the chart's tools are missing: {problem}", file=sys.stderr)
        return 1 if _servers_required() else 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 tools/servers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, action, meaning in (
        ("up", _up, "install and start what does not run yet"),
        ("down", _down, "stop what was started here"),
        ("browser", _browser, "install Chromium, unless it is there"),
        ("chart-tools", _chart_tools, "have helm, promtool and the schemas for `make chart`"),
        ("env", _env, "print the addresses as shell exports"),
    ):
        commands.add_parser(name, help=meaning).set_defaults(action=action)
    run = commands.add_parser("run", help="run a command with the servers up, then stop them")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(action=_run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
