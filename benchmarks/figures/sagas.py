"""Random chains of sagas, with rejections, crashes and redeliveries: in how many money is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from harness import servers
from harness.figure import Figure, Measured, NotMeasured

#: Fewer for a quick look while working on the code; the report tells how many there were.
RUNS = int(os.environ.get("BENCH_SAGA_RUNS", "1000"))
TESTS = Path(__file__).resolve().parents[2] / "tests"
#: Exit codes of a model that came to a verdict: everything adds up, something does not.
_WELL, _BROKEN = 0, 1


def measure() -> Measured:
    """Play the runs; raises NotMeasured if they came to no verdict."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with servers.database() as books:
        command = [
            sys.executable, "-m", "saga_model", "--runs", str(RUNS),
            "--redis", servers.address(servers.REDIS), "--books", books,
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode not in (_WELL, _BROKEN):
        raise NotMeasured(done.stderr[-2000:])
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(
        values=[told["kept"]],
        detail={**told, "broker": "Redis", "claims": "Redis", "books": "PostgreSQL"},
    )


FIGURES = (
    Figure(
        key="saga_model_runs",
        title="random chains of sagas with crashes after each of which all money is accounted for",
        unit="runs",
        aim="≥ 1000",
        against="nothing: it must hold after every run",
        how=(
            "Players reserve funds, sagas seat them at tables, tables refuse, funds are released,"
            " hands move chips. Messages are delivered one at a time in an order drawn by a seed,"
            " a tenth of them twice; the process dies at one in 25 of the steps that touch a store"
            " or a queue, before or after it; compensation itself fails in a quarter of the cases."
            " Dead letters are replayed. A run counts if bankrolls, reservations and chips make the"
            " sum that was there before, and nothing stays reserved without a seat or a release."
        ),
        measure=measure,
    ),
)
