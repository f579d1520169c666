from __future__ import annotations

import pytest
from tests.contracts.alerts import AlertsContract

from angzarr.adapters.memory.alerts import MemoryAlerts


class TestMemoryAlerts(AlertsContract):
    @pytest.fixture
    def alerts(self, clock):
        return MemoryAlerts(clock)
