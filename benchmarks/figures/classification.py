"""How many failures of each class the rules that ship recognise, on letters of real failures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from harness.figure import Figure, Measured
from harness.worker import BENCHMARKS

#: The labelled letters are the tests' own: they judge, and tell.
_JUDGE = ("-m", "tools.corpus", "--score", "--json")


def measure() -> Measured:
    """Judge every line of the labelled set once; nothing in it is left to chance."""
    told = json.loads(
        subprocess.run(
            [sys.executable, *_JUDGE], cwd=BENCHMARKS.parent, check=True, capture_output=True
        ).stdout
    )
    return Measured(
        values=[min(one["recall"] for one in told["known"].values())],
        detail={
            "letters": told["letters"],
            **_classes("", told["known"]),
            **_classes("ledger_only_", told["ledger_only"]),
            **_classes("held_out_", told["held_out"]),
        },
    )


def _classes(prefix: str, told: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Tell precision and recall of each class, and how many lines are of it."""
    return {
        f"{prefix}{name}": f"{one['precision']:.2f} / {one['recall']:.2f} of {one['lines']}"
        for name, one in told.items()
    }


FIGURES = (
    Figure(
        key="classify_recall_min",
        title="lowest recall of a class on the labelled letters",
        unit="ratio",
        aim="≥ 0.9",
        against="the labels, made from what was provoked",
        how=(
            "Letters of real failures, recorded with the class that an operator would give and the"
            " evidence at hand, are judged by the rules that ship: precision / recall of how many"
            " lines, for each class. The rules were written with these lines in mind, so this says"
            " how well they fit; *held out* are lines that were not, few of a class, and the better"
            " forecast. *Ledger only* is what is known where successes are not heard of."
        ),
        measure=measure,
    ),
)
