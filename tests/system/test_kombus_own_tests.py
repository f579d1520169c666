"""What kombu itself tests of its Redis transport holds of ours; see tools/foreign."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from addresses import servers_required

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "reference" / "redis-transport-tests.md"
SCRIPT = CHECKOUT / "tools" / "foreign" / "kombu_redis.py"
CANNOT_BE_HAD = 3


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run kombu's tests; without a network they are skipped on a laptop, as servers are."""
    result = subprocess.run(
        [sys.executable, SCRIPT, *arguments], env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode == CANNOT_BE_HAD and not servers_required():
        pytest.skip(result.stderr.strip())
    return result


def test_kombus_own_tests_pass_but_for_those_that_the_page_lists(tmp_path):
    page = tmp_path / "page.md"
    result = run("--page", str(page))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert page.read_text() == PAGE.read_text(), f"{SCRIPT.name} --page {PAGE.name} is due"


@pytest.mark.soak
@pytest.mark.parametrize(("test", "code"), [("test_qos_requeue", 1), ("test_delivery_tag", 0)])
def test_a_test_that_is_left_out_and_passes_fails_the_run(test, code):
    result = run("--", "-k", test, KOMBU_REDIS_TRANSPORT="kombu")
    assert result.returncode == code
    assert ("[XPASS(strict)]" in result.stdout) is bool(code)
