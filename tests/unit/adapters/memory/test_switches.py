"""Switches of one process."""

from __future__ import annotations

import pytest
from tests.contracts.switches import MOST, SwitchesContract

from angzarr.adapters.memory.switches import InProcessSwitches
from hand_clock import ByHand


class TestInProcessSwitches(ByHand, SwitchesContract):
    @pytest.fixture
    def make(self, clock):
        """Make the switches once: there is one process."""
        made = []

        def make(watch=None):
            if not made:
                made.append(InProcessSwitches(clock=clock, most=MOST))
            if watch is not None:
                made[0]._watch = watch
            return made[0]

        return make
