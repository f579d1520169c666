"""What a full run of the accounting checker (`make chaos`) found that must not be.

Any breach counts, not a lost event alone: a run that cannot account for one event shows nothing
about the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness.figure import Figure, Measured, NotMeasured

#: Seconds of faults, shared by the brokers; fewer for a quick look while working on the code.
DURATION = float(os.environ.get("BENCH_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("BENCH_CHAOS_SEED", "1"))
BROKERS = ("rabbitmq", "redis")
CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "build" / "chaos"
#: Exit codes of a checker that came to a verdict: nothing is wrong, something is.
_WELL, _BREACHES = 0, 1


def measure() -> Measured:
    """Run the checker and read what it found; raises NotMeasured if it came to no verdict."""
    command = [
        sys.executable, str(CHECKOUT / "tools" / "chaos"), "--dir", str(FOLDER),
        "--duration", str(DURATION), "--seed", str(SEED),
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode not in (_WELL, _BREACHES):
        raise NotMeasured(done.stderr[-2000:])
    return judged(done.returncode, [FOLDER / broker / "summary.json" for broker in BROKERS])


def judged(code: int, summaries: Sequence[Path]) -> Measured:
    """Return the breaches that *summaries* tell; raises NotMeasured if *code* does not fit them."""
    missing = [str(path) for path in summaries if not path.exists()]
    if missing:
        msg = f"the checker wrote no {' and no '.join(missing)}"
        raise NotMeasured(msg)
    found = [json.loads(path.read_text()) for path in summaries]
    breaches = sum(sum(one["breaches"].values()) for one in found)
    if (code == _WELL) != (breaches == 0):
        msg = f"the checker ended with {code} and told {breaches} breaches"
        raise NotMeasured(msg)
    return Measured(values=[breaches], detail=_detail(found))


def _detail(found: list[dict[str, Any]]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    breaches: Counter[str] = Counter()
    recoveries: dict[str, list[float]] = {}
    for one in found:
        faults.update(one["faults"])
        breaches.update(one["breaches"])
        for kind, seconds in one["recovery_s"].items():
            recoveries.setdefault(kind, []).extend(seconds)
    return {
        "brokers": ", ".join(one["broker"] for one in found),
        "seconds": DURATION,
        "seed": SEED,
        "events": sum(one["events"] for one in found),
        "messages": sum(one["messages"] for one in found),
        "lost": sum(one["lost"] for one in found),
        "breaches": dict(sorted(breaches.items())) or "none",
        "runs_of_handlers": sum(one["runs"] for one in found),
        "of_them_begun_under_faults": sum(one["begun_under_faults"] for one in found),
        "runs_cut_short": sum(one["cut"] for one in found),
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
        title="events lost or otherwise in breach, in a fleet under faults",
        unit="breaches",
        aim="= 0",
        against="nothing: plain Celery loses some of these fates by design",
        how=(
            "`make chaos`: a seeded stream of events whose payload names their fate, on a fleet of"
            " one prefork worker and two of `angzarr worker`, one of them with threads, while"
            " workers, children, brokers, Redis and connections are killed, stopped, cut and"
            " flooded by a seeded plan. At the end"
            " every event must be handled, skipped or in exactly one ledger entry, and must have"
            " come there by the rules; four in five runs of handlers must have begun while faults"
            " went on. Every breach counts. It takes no notice of angzarr's own records."
        ),
        measure=measure,
    ),
)
