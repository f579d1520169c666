"""What `import angzarr` costs a process that imports Celery anyway."""

from __future__ import annotations

import subprocess
import sys

from harness.figure import Figure, Measured
from harness.pairs import Pair, alternate, differences, medians

PAIRS = 15

_TIMED = """
from time import perf_counter
began = perf_counter()
{statements}
print(perf_counter() - began)
"""


def import_ms(statements: str) -> float:
    """Return how long a fresh interpreter needs for import *statements*, in milliseconds."""
    program = _TIMED.format(statements=statements)
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(said.stdout) * 1000


def _compare(ours: str, theirs: str) -> list[Pair]:
    return alternate(lambda: import_ms(ours), lambda: import_ms(theirs), pairs=PAIRS, discarded=1)


def measure() -> Measured:
    """Measure the bare import, and beside it the import of the app's class, which is lazy."""
    bare = _compare("import celery\nimport angzarr", "import celery")
    used = _compare("from angzarr import Angzarr", "from celery import Celery")
    return Measured(
        values=differences(bare),
        detail={
            "ms_import_celery": round(medians(bare).theirs, 1),
            "ms_import_celery_and_angzarr": round(medians(bare).ours, 1),
            "ms_from_celery_import_Celery": round(medians(used).theirs),
            "ms_from_angzarr_import_Angzarr": round(medians(used).ours),
        },
    )


FIGURES = (
    Figure(
        key="import_ms",
        title="added by `import angzarr`",
        unit="ms",
        aim="≤ 150 ms",
        against="`import celery` alone, in a fresh interpreter each",
        how=(
            "Fresh interpreters in turn, bytecode cached, time taken inside. Both packages import"
            " their names when they are first used, so the bare import says little; what a"
            " process pays that uses the app's class stands beside it."
        ),
        measure=measure,
    ),
)
