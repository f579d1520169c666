from __future__ import annotations

import logging

import pytest
from tests.contracts.facts import FactLogContract, a_fact

from angzarr.adapters.memory.facts import FanOutFactLog, MemoryFactLog


class Broken:
    def append(self, facts, *, before_ack=False):
        raise RuntimeError("broken")

    def close(self):
        raise RuntimeError("broken")


class TestMemoryFactLog(FactLogContract):
    @pytest.fixture
    def log(self):
        return MemoryFactLog()

    def kept(self, log):
        return log.read()


def test_fan_out_gives_every_log_every_fact_even_after_a_broken_one(caplog):
    first, last = MemoryFactLog(), MemoryFactLog()
    log = FanOutFactLog([first, Broken(), last])
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        log.append([a_fact()])
        log.close()
    assert first.read() == last.read() == [a_fact()]
    assert [record.message for record in caplog.records] == ["fact_log_failed"] * 2
