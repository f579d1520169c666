"""A handler that takes its events in batches, one call for each, with all guarantees on."""

from __future__ import annotations

import logging
from decimal import Decimal

from pydantic import BaseModel

from angzarr import Angzarr
from angzarr.delivery import Batch
from workers.call import call
from workers.environment import BROKER, FOLDER, SHARED, body
from workers.stamps import Stamps

STAMPS = Stamps(FOLDER / "stamps")


class OrderPlaced(BaseModel):
    number: int
    order_id: str
    total: Decimal
    currency: str


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)
# The worker logs warnings only, as on the other side, but every fact is written.
logging.getLogger("angzarr.facts").setLevel(logging.INFO)


@app.handler(
    OrderPlaced,
    domain="order",
    breaker="crm",
    name="bench.batch",
    batch=Batch(size=100, wait=0.05),
)
def index(events: list[OrderPlaced]) -> None:
    call()
    for event in events:
        STAMPS.set(event.number)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(OrderPlaced(**body(number)), root=f"o-{number}")
