"""Programs that tests start themselves."""

from __future__ import annotations

import shutil
from typing import NoReturn

import pytest

from addresses import servers_required


def require(program: str, package: str) -> str:
    """Return the path of *program*; without it a test is skipped on a laptop and fails in CI."""
    path = shutil.which(program)
    if path:
        return path
    return lacking(f"no {program} on the path: install Debian's package {package}")


def lacking(reason: str) -> NoReturn:
    """Skip the test for *reason* on a laptop, and fail it in CI."""
    if servers_required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
