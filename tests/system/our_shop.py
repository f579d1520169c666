"""The same shop as `stock_shop` on Angzarr: the import is another, and three servers are named."""

from __future__ import annotations

import os
from typing import Any

from angzarr import Angzarr

app = Angzarr(
    "shop",
    broker=os.environ["SHOP_BROKER"],
    backend=os.environ["SHOP_BACKEND"],
    store=os.environ["SHOP_BACKEND"],
    dlq={"backend": "amqp", "amqp_url": os.environ["SHOP_LETTERS"]},
)


@app.task(bind=True)
def pay(self: Any, amount: float) -> float:
    """Pay, and try again while the bank is away."""
    try:
        return 100 / amount
    except ZeroDivisionError as error:
        raise self.retry(exc=error) from error


@app.task
def mail(order: str) -> str:
    """Tell the customer."""
    return order
