from __future__ import annotations

import random

import pytest
from tests.accounts import Account, Deposit, command, new_address
from tests.hand_clock import HandClock

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.deciding import Decider
from angzarr.errors import IdempotencyConflictError


def carry_out(books, asked):
    decider = Decider(
        books=books, aggregates={"account": Account}, clock=HandClock(), chance=random.random
    )
    return decider.execute(asked)


def test_another_command_that_was_quicker_under_the_same_id_is_told_from_this_one():
    """Both read a book without a decision; the one that writes second is not the other."""
    place = new_address()
    other = command(place, Deposit(cents=6), id="order-17")

    class Slow(MemoryEventBooks):
        def write(self, write):
            if write.decision.digest != other.digest:
                carry_out(self, other)
            return super().write(write)

    with pytest.raises(IdempotencyConflictError, match="'order-17' was used before"):
        carry_out(Slow(), command(place, Deposit(cents=5), id="order-17"))
