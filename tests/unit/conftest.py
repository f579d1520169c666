"""Apps on the memory broker."""

from __future__ import annotations

import pytest
from tests.apps import apps


@pytest.fixture
def make_app():
    with apps(broker="memory://", store="memory://") as make:
        yield make
