"""Ours with all guarantees on, telemetry off: claim, owner lease, start count, breaker, typed
decode, fact, confirmed copies.
"""

from __future__ import annotations

import importlib
import logging
import os
from decimal import Decimal

from pydantic import BaseModel
from workers.environment import BROKER, SHARED

from angzarr import Angzarr, Publication, RetryLater
from peers.apps import work

if "BENCH_TELEMETRY" in os.environ:
    importlib.import_module("workers.telemetry")

#: Events that one call publishes.
BATCH = 500


class PeerOrderPlaced(BaseModel):
    number: int
    order_id: str
    total: Decimal
    currency: str


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)
# The worker logs warnings only, as the others do, but every fact is written.
logging.getLogger("angzarr.facts").setLevel(logging.INFO)


def handle(event: PeerOrderPlaced) -> None:
    try:
        work.run({"number": event.number})
    except work.Unlucky as error:
        raise RetryLater(0, cause=error) from None


async def handle_async(event: PeerOrderPlaced) -> None:
    try:
        await work.run_async({"number": event.number})
    except work.Unlucky as error:
        raise RetryLater(0, cause=error) from None


app.handler(PeerOrderPlaced, domain="order", breaker="crm", name="bench.handle")(
    handle_async if "BENCH_ASYNC" in os.environ else handle
)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(PeerOrderPlaced(**work.body(number)), root=f"o-{number}")


def send_many(numbers: range) -> None:
    """Publish many events."""
    for start in range(numbers.start, numbers.stop, BATCH):
        chunk = range(start, min(start + BATCH, numbers.stop))
        app.publish_many([_publication(number) for number in chunk])


def _publication(number: int) -> Publication:
    return Publication(PeerOrderPlaced(**work.body(number)), root=f"o-{number}")
