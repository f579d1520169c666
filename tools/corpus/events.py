"""The events that the scenarios' handlers take."""

from __future__ import annotations

from pydantic import BaseModel


class OrderPlaced(BaseModel):
    order_id: str
    customer_id: str
    sku: str
    total: int
