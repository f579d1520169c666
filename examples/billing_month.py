"""A month of invoices for the demo: whose prices change while some of them wait."""

from __future__ import annotations

import random

from billing import InvoiceDue

#: The prices, before and after they change.
PRICES = (
    {"request": "0.05", "minute": "0.19"},
    {"request": "0.08", "minute": "0.29"},
)
#: The share of cards that are blocked until a person unblocks them.
BLOCKED = 0.08
#: The share of all invoices that are due after the prices have changed.
LATE = 0.2


def invoices(count: int, seed: int) -> list[InvoiceDue]:
    """*count* invoices of three hundred customers."""
    dice = random.Random(f"billing {seed}")
    return [
        InvoiceDue(
            customer=f"c-{dice.randint(1, 300):03}",
            minutes=dice.randint(1, 600),
            card_blocked=dice.random() < BLOCKED,
        )
        for _ in range(count)
    ]
