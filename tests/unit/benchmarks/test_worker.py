from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness.worker import Worker

from polling import wait_until

#: Starts a process with a session of its own, as a supervisor does, and says its number.
PARENT = """
import pathlib, subprocess, sys, signal
child = subprocess.Popen(
    [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
signal.pause()
"""


@pytest.fixture
def worker(tmp_path):
    environment = {**os.environ, "BENCH_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", PARENT, str(tmp_path / "pid")]
    worker = Worker(command, environment, tmp_path / "log")
    yield worker
    worker.kill()


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1]) / 1024


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_what_a_worker_starts_in_another_session_is_counted_and_killed(worker, tmp_path):
    written = tmp_path / "pid"
    child = int(wait_until(lambda: written.exists() and written.read_text(), "it starts another"))
    assert worker.rss_mib() > resident_mib(worker.pid) * 1.2
    (of_child,) = worker.child_pss_mib()
    assert 0 < of_child < worker.pss_mib()
    worker.kill()
    assert not lives(child)
