"""A shop that packs what was ordered."""

from decimal import Decimal

from pydantic import BaseModel

from angzarr import Angzarr, Context

app = Angzarr("shop")


class OrderPlaced(BaseModel):
    order_id: str
    total: Decimal
    parcels: int


@app.handler(OrderPlaced, domain="order")
def pack(order: OrderPlaced, ctx: Context) -> None:
    value_of_a_parcel = order.total / order.parcels
    ctx.log.info("packed", order=order.order_id, value_of_a_parcel=str(value_of_a_parcel))
