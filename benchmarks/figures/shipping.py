"""What it takes to ship: the tutorial's time, a roll-out's dip, the image's size, the doctor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.book import CHECKOUT
from harness.figure import Figure, Measured, NotMeasured
from harness.recorded import recorded

TUTORIAL = "test_every_command_of_the_tutorial_does_what_the_page_says"
ROLL_OUT = "test_a_roll_out_under_load_loses_nothing_and_runs_nothing_twice"
FINDINGS = "test_the_page_shows_what_is_found"
ROLL_OUTS = 3
_MEGABYTE = 1_000_000
_IMAGE = CHECKOUT / "build" / "image"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def tutorial() -> Measured:
    """Run the tutorial's commands where no layer of an image is there, nor their base."""
    shutil.rmtree(_IMAGE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as cache:
        _all_but_the_base(Path(cache) / "angzarr")
        took = recorded("tests/cluster", TUTORIAL, {"XDG_CACHE_HOME": cache})[""]
    longest = sorted(took.items(), key=lambda item: -item[1])[:6]
    return Measured(
        values=[sum(took.values())],
        detail={"commands": len(took), **{f"s of `{name}`": s for name, s in longest}},
    )


def _all_but_the_base(cache: Path) -> None:
    """Have in *cache* what the reader's machine has, programs and a node, but no image."""
    cache.mkdir()
    kept = (one for one in (_CACHE / "angzarr").glob("*") if one.is_dir())
    for one in kept:
        if not one.name.startswith("image-base-"):
            (cache / one.name).symlink_to(one)


def roll_out() -> Measured:
    """Replace a pool under load a few times, and set its rate against that before."""
    found = [recorded("tests/cluster", ROLL_OUT)[""] for _ in range(ROLL_OUTS)]
    return Measured(
        values=[one["rate_during"] / one["rate_before"] for one in found],
        detail={
            "events": [one["events"] for one in found],
            "lost": 0,
            "handled twice": 0,
            "events/s before": [one["rate_before"] for one in found],
            "events/s during": [one["rate_during"] for one in found],
            "events in the lowest second": [one["lowest_second"] for one in found],
            "s of the roll-out": [one["roll_out_seconds"] for one in found],
        },
    )


def image() -> Measured:
    """Build the image, and read what its layers take in a registry."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.image"],
        cwd=CHECKOUT, env={**os.environ, "ANGZARR_REQUIRE_SERVERS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        msg = f"the image was not built: {done.stderr[-2000:]}"
        raise NotMeasured(msg)
    built = json.loads((_IMAGE / "built.json").read_text())
    base, *ours = (round(layer / _MEGABYTE, 1) for layer in built["layers"])
    return Measured(
        values=[sum(built["layers"]) / _MEGABYTE],
        detail={
            "MB of its base in a registry": base,
            "MB of ours, layer by layer": ours,
            "MB on disk": round(built["size"] / _MEGABYTE, 1),
            "of these its base": round(built["base_size"] / _MEGABYTE, 1),
        },
    )


def findings() -> Measured:
    """Have the doctor look at the same shop on angzarr and on Celery's defaults."""
    found = recorded("tests/system/test_doctor.py", FINDINGS)
    return Measured(
        values=[_worst(one) for case, one in found.items() if case.startswith("our_")],
        detail={case: _told(one) for case, one in found.items()},
    )


def _worst(found: Mapping[str, int]) -> int:
    return found.get("critical", 0) + found.get("error", 0)


def _told(found: Mapping[str, int]) -> str:
    by_severity = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items()))
    return f"{sum(found.values())} ({by_severity})"


FIGURES = (
    Figure(
        key="tutorial_s",
        title="all commands of the tutorial, from no image to a replayed dead letter",
        unit="s",
        aim="≤ 600 s",
        against="nothing: an absolute",
        how=(
            "The commands of `docs/tutorial/on-kubernetes.md`, one after the other, on a machine"
            " that has the programs and kind's node, but no image and no base of one; what a"
            " command only looks for is asked until it is there. Reading and typing is not in it."
        ),
        measure=tutorial,
    ),
    Figure(
        key="rollout_dip",
        title="events handled a second during a roll-out against before it",
        unit="ratio",
        aim="≥ 0.9",
        against="the same pool, in the ten seconds before",
        how=(
            "`helm upgrade` of a pool of three under 40 events/s on a real Kubernetes, by the"
            " chart's signals, probes and grace. A run counts only if every event was handled"
            " once, by the old release or the new."
        ),
        measure=roll_out,
        worst=True,
    ),
    Figure(
        key="image_mb",
        title="the container image, as a registry keeps it",
        unit="MB",
        aim="≤ 200 MB",
        against="nothing: an absolute",
        how="The Dockerfile with every extra; the layers gzipped, the base's included.",
        measure=image,
    ),
    Figure(
        key="doctor_findings",
        title="errors and critical findings of `angzarr doctor` on a shop of ours",
        unit="findings",
        aim="= 0",
        against="the same shop on Celery's defaults and the same servers, in the details",
        how=(
            "A worker runs; the broker is a RabbitMQ or a Redis that keeps what it is given."
            " Every finding is named in `docs/reference/doctor.md`."
        ),
        measure=findings,
    ),
)
