"""A dependency to call, in a process of its own, which can be made sick and well again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.dependency import LOOPBACK
from workers.journal import Journal

from harness.figure import NotMeasured
from harness.worker import BENCHMARKS


class Dependency:
    """Answers `GET url/<number>`; *calls* has each call from when it came in."""

    def __init__(self, process: subprocess.Popen[str], calls: Journal) -> None:
        self._process, self.calls = process, calls
        self.url = f"http://{LOOPBACK}:{self._said()}"

    def turn(self, to: str) -> float:
        """Make it `well`, `sick` or `mute`; return since when it is (s, monotonic)."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{to}\n")
        self._process.stdin.flush()
        return float(self._said())

    def _said(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line.strip()
        msg = f"the dependency ended with {self._process.wait()}"
        raise NotMeasured(msg)


@contextmanager
def dependency() -> Iterator[Dependency]:
    """Lend a dependency that is well; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="angzarr-bench-") as folder:
        path = Path(folder) / "calls"
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.dependency", str(path)],
            cwd=BENCHMARKS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        calls = Journal(path)
        try:
            yield Dependency(process, calls)
        finally:
            process.kill()
            process.communicate()
            calls.close()
