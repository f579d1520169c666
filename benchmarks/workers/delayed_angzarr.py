"""Every event is postponed by an hour when its handler runs; the first few warm the worker up."""

from __future__ import annotations

import os

from pydantic import BaseModel

from angzarr import Angzarr, Postpone
from workers.environment import BROKER, FOLDER, SHARED, body
from workers.stamps import Stamps

STAMPS = Stamps(FOLDER / "stamps")
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
def delayed(event: OrderPlaced) -> None:
    STAMPS.set(event.number)
    raise Postpone(HOUR)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(OrderPlaced(**body(number)), root=f"o-{number}")
