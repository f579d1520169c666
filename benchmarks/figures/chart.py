"""What rendering the Helm chart costs, whole processes of helm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import median
from time import perf_counter

from harness.figure import Figure, Measured, NotMeasured

RUNS = 15
CHECKOUT = Path(__file__).resolve().parents[2]
CHART = CHECKOUT / "charts" / "angzarr"
_TOOLS = CHECKOUT / "build" / "chart" / "tools.json"
#: The least that there is, and twenty pools with everything around them.
_LEAST, _MOST = "minimal", "many-pools"


def _render(helm: str, name: str) -> tuple[float, int]:
    """Return how long `helm template` took, in milliseconds, and how many objects it made."""
    values = CHART / "ci" / f"{name}.yaml"
    command = [helm, "template", "t", str(CHART), "--kube-version", "1.37", "-f", str(values)]
    began = perf_counter()
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return (perf_counter() - began) * 1000, made.count("\nkind: ")


def measure() -> Measured:
    """Render the largest and the least set of values in turn."""
    if not _TOOLS.exists():
        raise NotMeasured("helm is missing: run `make chart` first")
    helm = json.loads(_TOOLS.read_text())["helm"]
    _render(helm, _MOST)
    most, least = zip(
        *((_render(helm, _MOST), _render(helm, _LEAST)) for _ in range(RUNS)), strict=True
    )
    return Measured(
        values=[took for took, _ in most],
        detail={
            "ms_default": round(median(took for took, _ in least), 1),
            "objects_default": least[0][1],
            "objects_largest": most[0][1],
        },
    )


FIGURES = (
    Figure(
        key="chart_render_ms",
        title="`helm template` of the largest set of values",
        unit="ms",
        aim="≤ 1000 ms",
        against="nothing: an absolute",
        how=(
            "Whole processes of helm, the largest set of values (20 pools) and the least in turn."
            " Every rule that values must keep is checked in each."
        ),
        measure=measure,
    ),
)
