"""Programs that tests start themselves."""

from __future__ import annotations

import shutil

import pytest
from tests.conftest import servers_required


def require(program: str, package: str) -> str:
    """Return the path of *program*; without it a test is skipped on a laptop and fails in CI."""
    path = shutil.which(program)
    if path:
        return path
    reason = f"no {program} on the path: install Debian's package {package}"
    if servers_required():
        pytest.fail(reason, pytrace=False)
    return pytest.skip(reason)
