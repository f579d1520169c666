from __future__ import annotations

import pytest
from tests.contracts.breakers import DEFAULTS, BreakersContract, Diary, Fleet
from tests.hand_clock import HandClock

from angzarr.adapters.memory.breaker import InProcessBreakers


class TestInProcessBreakers(BreakersContract):
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def let_pass(self, clock):
        return clock.sleep

    @pytest.fixture
    def make_fleet(self, clock):
        def make(settings=None, default=DEFAULTS):
            diary = Diary()
            breakers = InProcessBreakers(settings, default, watch=diary, clock=clock)
            return Fleet(breakers, breakers, [diary])

        return make
