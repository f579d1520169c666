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
SOME = ["--", "-k", "second_order_replace or replace_with_chain"]


@pytest.mark.longer
@pytest.mark.timeout(1800)
def test_celerys_canvas_holds_on_an_angzarr_app():
    result = subprocess.run(
        [sys.executable, SCRIPT, *([] if SOAKING else SOME)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode == CANNOT_BE_HAD and not servers_required():
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
