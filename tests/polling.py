"""Polling: wait for what another thread, process or server will do; no fixed sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

#: Seconds that are enough on a busy machine.
PATIENCE = 10.0


def wait_until(
    truth: Callable[[], object], what: str = "it is so", seconds: float = PATIENCE
) -> Any:
    """Poll until *truth* holds and return what it said, or fail naming *what*."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := truth():
            return found
        time.sleep(0.01)
    return pytest.fail(f"waited {seconds} s until {what}")
