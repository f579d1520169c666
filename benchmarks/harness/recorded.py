"""Recorded: what a test that proves something measured on the way, run anew for its figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.book import CHECKOUT
from harness.figure import NotMeasured

_REPORTS = CHECKOUT / "build" / "reports"


def recorded(
    folder: str, test: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run *test*, and return what each of its cases recorded, by the name of the case.

    *folder* is where its module is. Raises NotMeasured if one fails. A test without cases has the
    one of no name.
    """
    for old in _reports(test).values():
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", folder, "-k", test]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "ANGZARR_REQUIRE_SERVERS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {case: json.loads(one.read_text()) for case, one in _reports(test).items()}
    if done.returncode or not found:
        msg = f"{test} failed: {done.stdout[-2000:]}"
        raise NotMeasured(msg)
    return found


def _reports(test: str) -> dict[str, Path]:
    named = ((*one.stem.partition("["), one) for one in _REPORTS.glob(f"{test}*.json"))
    return {case.rstrip("]"): one for name, _, case, one in named if name == test}
