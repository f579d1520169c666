"""Run kombu's own tests of its Redis transport on ours: python tools/foreign/kombu_redis.py

They come from the source distribution of the pinned kombu, checked by the hash that is pinned with
it, and are kept where tools/servers keeps its downloads; none of kombu's code is in this project.
``--page FILE`` also writes the page about what ran and what was left out; what follows ``--`` is
pytest's. Ends with pytest's code, or with 3 if the tests cannot be had.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "servers"))

from server import CannotStart  # noqa: E402 - the same
from sources import CANNOT_BE_HAD, pin_of, tests_of  # noqa: E402 - the same

from page import render  # noqa: E402 - found in the folder above

TESTS = "t/unit/transport/test_redis.py"
#: The tests themselves, what they import of their own, and kombu's settings for pytest.
_WANTED = re.compile(r"[^/]+/(t/.*\.py|setup\.cfg)")


def main() -> int:
    """Do what the command line asks and return the exit code."""
    arguments = _parser().parse_args()
    try:
        folder = tests_of("kombu", _WANTED)
    except CannotStart as problem:
        sys.stderr.write(f"kombu's tests cannot be had: {problem}\n")
        return CANNOT_BE_HAD
    result = _run(folder, arguments.pytest)
    sys.stdout.write(result.stdout + result.stderr)
    if result.returncode == 0 and arguments.page:
        passed, left_out = (_number(result.stdout, kind) for kind in ("passed", "xfailed"))
        _write(arguments.page, passed, left_out)
    return result.returncode


def _run(folder: Path, more: list[str]) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "pytest", TESTS, "-c", "setup.cfg", "-p", "no:cacheprovider",
        "-p", "substitute", "--timeout", "20", "--tb", "short", "--quiet", *more,
    ]  # fmt: skip
    path = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _number(said: str, kind: str) -> int:
    found = re.search(rf"(\d+) {kind}", said)
    return int(found[1]) if found else 0


def _write(page: Path, passed: int, left_out: int) -> None:
    groups = tomllib.loads((HERE / "kombu_redis.toml").read_text()).values()
    version = pin_of("kombu").split()[0].partition("==")[2]
    page.write_text(render(version, passed, left_out, groups))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="where to write the page")
    parser.add_argument("pytest", nargs="*", help="after --: arguments for pytest")
    return parser


if __name__ == "__main__":
    sys.exit(main())
