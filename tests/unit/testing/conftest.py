"""The fixtures that users get, for the tests of themselves."""

from __future__ import annotations

import pytest
from tests.unit.testing import shop

from angzarr.testing import (  # noqa: F401 - fixtures
    FakeClock,
    angzarr_app,
    angzarr_chance,
    angzarr_settings,
    angzarr_worker,
    aws,
    dead_letters,
    facts,
    ledger,
    running_worker,
)


@pytest.fixture
def fake_clock():
    """A time that is easy to read in a failed assertion."""
    return FakeClock(shop.START)


@pytest.fixture
def app_under_test():
    """An app whose servers are nowhere."""
    shop.asked.clear()
    shop.counted.clear()
    shop.uncountable.clear()
    shop.says.clear()
    return shop.app
