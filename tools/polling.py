"""Polling: wait for what another thread, process or server will do; no fixed sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

#: Seconds after which what was waited for never comes, also on a machine ten times too slow.
PATIENCE = 120.0
#: The longest pause between two looks: a look may ask a server.
PAUSE = 0.05


def wait_until(
    truth: Callable[[], object], what: str = "it is so", seconds: float = PATIENCE
) -> Any:
    """Poll until *truth* holds and return what it said, or fail naming *what*."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while time.monotonic() < deadline:
        if found := truth():
            return found
        time.sleep(pause)
        pause = min(2 * pause, PAUSE)
    return pytest.fail(f"waited {seconds} s until {what}")
