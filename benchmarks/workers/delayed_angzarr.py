"""Every event is published with a countdown of an hour, but for the first few: they warm up."""

from __future__ import annotations

import os

from pydantic import BaseModel

from angzarr import Angzarr
from workers.environment import BROKER, SHARED, body

HOUR = 3600


class OrderPlaced(BaseModel):
    number: int
    order_id: str
    total: str
    currency: str


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)
if os.environ.get("BENCH_QUEUE_TYPE") == "classic":  # RabbitMQ delays nothing for these
    app.conf.update(task_default_queue_type="classic", task_default_exchange_type="direct")


@app.handler(OrderPlaced, domain="order", name="bench.delayed")
def delayed(_event: OrderPlaced) -> None:
    """Do nothing, in an hour."""


def send(number: int) -> None:
    """Publish one event."""
    app.publish(OrderPlaced(**body(number)), root=f"o-{number}", countdown=HOUR)
