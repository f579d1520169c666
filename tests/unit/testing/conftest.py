"""The fixtures that users get, for the tests of themselves."""

from __future__ import annotations

import pytest
from tests.unit.testing import shop

from angzarr.testing import (  # noqa: F401 - fixtures
    angzarr_app,
    angzarr_chance,
    angzarr_settings,
    angzarr_worker,
    aws,
    dead_letters,
    facts,
    fake_clock,
    ledger,
    running_worker,
)


@pytest.fixture
def app_under_test():
    """An app whose servers are nowhere."""
    shop.asked.clear()
    shop.says.clear()
    return shop.app
