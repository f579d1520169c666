from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.breakers import DEFAULTS, TOUCHY, BreakersContract, Diary, Fleet, call
from tests.hand_clock import ByHand

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.resilience.breaker import BreakerSettings


class TestInProcessBreakers(ByHand, BreakersContract):
    @pytest.fixture
    def make_fleet(self, clock):
        def make(settings=None, default=DEFAULTS):
            diary = Diary()
            breakers = InProcessBreakers(settings, default, watch=diary, clock=clock)
            return Fleet(breakers, breakers, [diary])

        return make

    def test_what_is_as_good_as_new_is_forgotten(self, make_fleet, clock):
        lasting = BreakerSettings(window=timedelta(hours=3))
        breakers = make_fleet(settings={"lasting": lasting}, default=TOUCHY).here
        for name in ("idle", "busy", "lasting", *["open"] * 3):
            call(breakers, name, "-")
        breakers.isolate("isolated", by="ann")
        clock.sleep(timedelta(minutes=59))
        call(breakers, "busy", "+")
        clock.sleep(timedelta(minutes=2))
        breakers.admit("new", "t")
        assert breakers.phases().keys() == {"busy", "lasting", "open", "isolated"}
