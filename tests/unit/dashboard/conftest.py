from __future__ import annotations

import pytest

from dashboard_world import World


@pytest.fixture
def world():
    return World()
