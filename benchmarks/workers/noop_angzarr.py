"""The same handler with all guarantees on, telemetry off (no OpenTelemetry SDK is set up).

They are: claim, owner lease, start count, breaker, typed decode, fact, confirmed copies.
"""

from __future__ import annotations

import logging
from decimal import Decimal

from pydantic import BaseModel

from angzarr import Angzarr
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


@app.handler(OrderPlaced, domain="order", breaker="crm", name="bench.noop")
def noop(event: OrderPlaced) -> None:
    STAMPS.set(event.number)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(OrderPlaced(**body(number)), root=f"o-{number}")
