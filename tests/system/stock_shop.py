"""A shop on Celery as its own guide begins: nothing but a broker and a result backend is set."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ["SHOP_BACKEND"])


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
