"""A web shop: what happens once an order is placed, paid or cancelled."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from application import app
from outside import System, Unwanted
from pydantic import BaseModel, Field

from angzarr import Context, GiveUp, Skip

warehouse = System("warehouse")
payments = System("payments")
crm = System("crm")
mail = System("mail", says="unwanted")


class Line(BaseModel):
    sku: str
    quantity: int = Field(gt=0)
    price: Decimal


class OrderPlaced(BaseModel):
    order_id: str
    customer_id: str | None  # None: somebody who bought without an account
    email: str
    lines: list[Line]
    placed_at: datetime

    @property
    def total(self) -> Decimal:
        """What the customer owes."""
        return sum((line.quantity * line.price for line in self.lines), Decimal(0))


class OrderPaid(BaseModel):
    order_id: str
    email: str
    amount: Decimal
    parcels: int


class OrderCancelled(BaseModel):
    order_id: str
    reason: str
    refund: Decimal


@app.handler(OrderPlaced, domain="order")
def reserve_stock(order: OrderPlaced) -> dict[str, int]:
    for line in order.lines:
        warehouse.request(f"reserve {order.order_id} {line.sku}")
    return {line.sku: line.quantity for line in order.lines}


@app.handler(OrderPlaced, domain="order", operation="external_api")
def charge_customer(order: OrderPlaced) -> None:
    if order.total <= 0:
        msg = f"order {order.order_id} costs {order.total}: there is nothing to charge"
        raise GiveUp(msg)
    payments.request(f"charge {order.order_id}")


@app.handler(OrderPlaced, domain="order", operation="crm_sync")
async def sync_to_crm(order: OrderPlaced, ctx: Context) -> None:
    if order.customer_id is None:
        raise Skip("the CRM knows no guests")
    ctx.log.info("order_synced", customer=order.customer_id)
    await crm.ask(f"upsert {order.order_id}")


@app.handler(OrderPaid, domain="order")
def pack(paid: OrderPaid) -> Decimal:
    value_of_a_parcel = paid.amount / paid.parcels  # a bug: a voucher comes without any parcel
    warehouse.request(f"pack {paid.order_id}")
    return value_of_a_parcel.quantize(Decimal("0.01"))


@app.handler(OrderPaid, domain="order", operation="webhook")
async def send_receipt(paid: OrderPaid) -> None:
    try:
        await mail.ask(f"receipt {paid.order_id}")
    except Unwanted as answer:
        raise Skip(str(answer)) from answer


@app.handler(OrderCancelled, domain="order")
def release_stock(cancelled: OrderCancelled) -> None:
    warehouse.request(f"release {cancelled.order_id}")


@app.handler(OrderCancelled, domain="order", operation="external_api")
def refund(cancelled: OrderCancelled) -> None:
    if cancelled.refund == 0:
        raise Skip("it was never paid")
    payments.request(f"refund {cancelled.order_id}")
