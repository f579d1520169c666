from __future__ import annotations

import random
from functools import partial

import pytest
from tests.contracts.command_clients import CommandClientContract, Counter, Hands

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.command import execute_with_retry
from angzarr.aggregates.decider import Decider
from angzarr.clock import SystemClock


class TestDecider(CommandClientContract):
    @pytest.fixture
    def hands(self, reviewed):
        decider = Decider(
            books=MemoryEventBooks(),
            aggregates={"counter": Counter},
            clock=SystemClock(),
            chance=random.random,
            for_review=reviewed.append,
        )
        retried = partial(execute_with_retry, client=decider)
        return Hands(decider.book, decider.execute, retried)
