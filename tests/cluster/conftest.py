"""A shell in which kubectl, helm, docker and kind reach the cluster of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from polling import wait_until
from programs import lacking

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
#: Seconds that a command may take: an image is built by one.
PATIENCE = 900


class Shell:
    """Runs commands one after the other, as a person does, and keeps how long each took."""

    def __init__(self, folder: Path, commands: str) -> None:
        self.folder = folder
        self.took: list[tuple[str, float]] = []
        self._environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}

    def run(self, command: str) -> str:
        """Return what *command* says; it must not fail. ``cd`` holds for those behind it."""
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        began = time.monotonic()
        done = self.try_to(command)
        self.took.append((command, time.monotonic() - began))
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def try_to(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def run_until(self, command: str, done: Callable[[str], bool], seconds: float = 600) -> str:
        """Run *command*, which changes nothing, until *done* with what it says; return that."""
        said = [self.run(command)]

        def is_done() -> bool:
            if not done(said[0]):
                said[0] = self.try_to(command).stdout
            return done(said[0])

        try:
            wait_until(is_done, f"it says so: {command}", seconds)
        except pytest.fail.Exception as late:
            pytest.fail(f"{late}\n{said[0]}")
        return said[0]


@pytest.fixture(scope="session")
def commands() -> Iterator[str]:
    """Where the commands are; the cluster that they made goes with the session."""
    made = _cluster("commands")
    if made.returncode:
        lacking(made.stderr.strip())
    built = _cluster("build")
    if built.returncode:
        lacking(built.stderr.strip())
    yield made.stdout.strip()
    _cluster("down")


def _cluster(verb: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHECKOUT / "tools" / "cluster", verb],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
