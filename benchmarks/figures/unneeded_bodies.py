"""Random histories of large messages, with crashes: how many needed bodies were deleted in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from harness.figure import Figure, Measured, NotMeasured

#: Fewer for a quick look while working on the code; the report tells how many there were.
RUNS = int(os.environ.get("BENCH_PAYLOAD_RUNS", "1000"))
TESTS = Path(__file__).resolve().parents[2] / "tests"
#: Exit codes of a model that came to a verdict: everything is in order, something is not.
_WELL, _BROKEN = 0, 1


def measure() -> Measured:
    """Play the histories; raises NotMeasured if they came to no verdict."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "payload_model", "--runs", str(RUNS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode not in (_WELL, _BROKEN):
        raise NotMeasured(done.stderr[-2000:])
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(values=[told["wrong"]], detail=told)


FIGURES = (
    Figure(
        key="gc_wrong",
        title="bodies deleted that something needed, in random histories with crashes",
        unit="bodies",
        aim="= 0",
        against="nothing: it must hold after every history",
        how=(
            "Publishers send large events, some of them twice; workers handle, skip, retry, delay,"
            " edit and dead-letter them; letters are filed, replayed as they are and edited, and"
            " their entries removed; collectors run, several at once, and some of their deletions"
            " come late. A process dies at one in 50 calls of a store or a queue, before or after"
            " it. After each of 40 steps, the body of each message that will run, of each letter"
            " and of each entry must be there. The code that decides is the real one; its stores"
            " are in memory."
        ),
        measure=measure,
    ),
)
