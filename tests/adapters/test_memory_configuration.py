"""Configurations and pins of one process."""

from __future__ import annotations

from functools import partial

import pytest
from tests.contracts.configuration import ConfigurationStoreContract, PinStoreContract

from angzarr.adapters.memory.configuration import MemoryConfigurationStore, MemoryPinStore
from hand_clock import HandClock


class TestMemoryConfigurationStore(ConfigurationStoreContract):
    @pytest.fixture
    def store(self):
        return MemoryConfigurationStore()


class TestMemoryPinStore(PinStoreContract):
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def let_pass(self, clock):
        return clock.sleep

    @pytest.fixture
    def make_pins(self, clock):
        return partial(MemoryPinStore, clock)

    def test_what_has_ended_takes_no_room(self, make_pins, clock):
        pins = make_pins()
        for number in range(100):
            pins.keep(str(number), {"pricing": "1"})
        clock.sleep(pins._life)
        pins.read("0")
        assert not pins._kept
