"""The suite that users copy, run as they would: from a copy, with the package that is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
CHECKOUT = Path(__file__).resolve().parents[2]
#: What a user does not have, or what would name our servers.
OURS = ("PYTHONPATH", "PYTEST_", "ANGZARR_", "CELERY_", "AWS_", "OUTSIDE_", "CI")


@pytest.fixture
def suite(tmp_path):
    """Run the copied suite and return the process that did."""
    copy = shutil.copytree(
        CHECKOUT / "examples", tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__")
    )

    def run(*arguments, **env):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", *arguments],
            cwd=copy / "tests", env=kept | env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_the_suite_that_users_copy_stands_alone_and_in_parallel(suite, sqs_endpoint):
    told = suite("-n", "2", ANGZARR_TEST_SQS_ENDPOINT=sqs_endpoint)
    assert told.returncode == 0, told.stdout
    counted = re.search(r"(\d+) passed", told.stdout)
    assert counted is not None
    assert int(counted[1]) >= 19
    assert "skipped" not in told.stdout


def test_without_localstack_its_tests_are_skipped_with_a_sentence(suite):
    told = suite("test_orders_on_aws.py", "-k", "LocalStack")
    assert told.returncode == 0, told.stdout
    assert "4 skipped" in told.stdout
    assert "no LocalStack: start one and name it, ANGZARR_TEST_SQS_ENDPOINT=" in told.stdout


def test_in_ci_localstack_must_be_there(suite):
    told = suite(
        "test_orders_on_aws.py", "-k", "LocalStack and queue", CI="true",
        ANGZARR_TEST_SQS_ENDPOINT="http://127.0.0.1:1",
    )  # fmt: skip
    assert told.returncode == 1
    assert "no LocalStack answers at http://127.0.0.1:1" in told.stdout
    assert "(in CI it must be there)" in told.stdout


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("", "no app to test: set angzarr_app in pytest's options"),
        ("nowhere:app", "angzarr_app = nowhere:app: "),
        ("orders:payments", "orders:payments"),
    ],
)
def test_an_app_that_cannot_be_tested_is_one_sentence(suite, option, said):
    told = suite("test_orders.py", "-k", "guest", "-o", f"angzarr_app={option}")
    assert told.returncode == 1
    assert said in told.stdout
    assert "Traceback" not in told.stdout
    assert "During handling" not in told.stdout
