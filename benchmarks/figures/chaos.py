"""Events lost over a full run of the accounting checker (`make chaos`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from harness.figure import Figure, Measured, NotMeasured

#: Seconds of faults, shared by the brokers; fewer for a quick look while working on the code.
DURATION = float(os.environ.get("BENCH_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("BENCH_CHAOS_SEED", "1"))
CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "build" / "chaos"
#: A checker that found breaches says so; it measured all the same.
_RAN = (0, 1)


def measure() -> Measured:
    """Run the checker and read what it found."""
    command = [
        sys.executable, str(CHECKOUT / "tests" / "chaos"), "--dir", str(FOLDER),
        "--duration", str(DURATION), "--seed", str(SEED),
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode not in _RAN:
        raise NotMeasured(done.stderr[-2000:])
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*/summary.json"))]
    return Measured(values=[sum(one["lost"] for one in found)], detail=_detail(found))


def _detail(found: list[dict[str, Any]]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    recoveries: dict[str, list[float]] = {}
    for one in found:
        faults.update(one["faults"])
        for kind, seconds in one["recovery_s"].items():
            recoveries.setdefault(kind, []).extend(seconds)
    return {
        "brokers": ", ".join(one["broker"] for one in found),
        "seconds": DURATION,
        "seed": SEED,
        "events": sum(one["events"] for one in found),
        "messages": sum(one["messages"] for one in found),
        "runs_of_handlers": sum(one["runs"] for one in found),
        "runs_cut_short": sum(one["cut"] for one in found),
        "other_breaches": sum(sum(one["breaches"].values()) - one["lost"] for one in found),
        "faults": dict(sorted(faults.items())),
        "first_effect_after_s": {
            kind: f"median {median(seconds):.1f}, longest {max(seconds):.1f}"
            for kind, seconds in sorted(recoveries.items())
            if seconds
        },
    }


FIGURES = (
    Figure(
        key="chaos_lost",
        title="events lost in a fleet under faults",
        unit="events",
        aim="= 0",
        against="nothing: plain Celery loses some of these fates by design",
        how=(
            "`make chaos`: a seeded stream of events whose payload names their fate, on a fleet of"
            " two prefork workers and one with threads, while workers, children, brokers, Redis"
            " and connections are killed, stopped, cut and flooded by a seeded plan. At the end"
            " every event must be handled, skipped or in exactly one ledger entry. It takes no"
            " notice of angzarr's own records."
        ),
        measure=measure,
    ),
)
