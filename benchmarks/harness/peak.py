"""Peak: a process that runs to its end, and the most memory that it had meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from harness.figure import NotMeasured
from harness.worker import BENCHMARKS


class Ran(NamedTuple):
    """How long a process ran, what it printed, and its largest resident set."""

    seconds: float
    printed: str
    peak_mib: float


def run(command: Sequence[str], environment: Mapping[str, str]) -> Ran:
    """Run *command* to its end; raises NotMeasured if that is not a good one.

    What it prints is little: nobody reads it before the end.
    """
    began, peak = time.perf_counter(), 0.0
    with subprocess.Popen(
        command, env=dict(environment), cwd=BENCHMARKS, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        while process.poll() is None:
            peak = max(peak, _peak_mib(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        printed, said = process.communicate()
    if process.returncode:
        msg = f"{' '.join(command[1:])} ended with {process.returncode}: {said[-2000:]}"
        raise NotMeasured(msg)
    return Ran(seconds, printed, peak)


def _peak_mib(pid: int) -> float:
    """Return the most that it had so far; nothing of a process that has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
