"""What Celery itself tests of replacements holds of an angzarr app; `make soak` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from addresses import servers_required
from endurance import SOAKING

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "tools" / "foreign" / "celery_canvas.py"
CANNOT_BE_HAD = 3


#: What `make test` runs of them: what a replaced task is.
SOME = ["second_order_replace or replace_with_chain"]
#: They mostly wait, a quarter of an hour in all: the parts run side by side. Each test is in one.
ALL = [
    "test_chord",
    "test_chain and not test_chord",
    "not test_chain and not test_chord",
]


@pytest.mark.longer
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ALL if SOAKING else SOME)
def test_celerys_canvas_holds_on_an_angzarr_app(part):
    result = subprocess.run(
        [sys.executable, SCRIPT, "--", "-k", part],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode == CANNOT_BE_HAD and not servers_required():
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
