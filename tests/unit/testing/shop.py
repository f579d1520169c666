"""An app as users have it: its servers are elsewhere, and nobody answers there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from angzarr import Angzarr, Context, Policy
from angzarr.delivery import Batch, BatchResult

app = Angzarr(
    "shop",
    broker="redis://nowhere.invalid:6379/0",
    backend="redis://nowhere.invalid:6379/1",
    ledger="postgresql+psycopg://nowhere.invalid/angzarr",
    dlq={"backend": "kafka", "kafka_brokers": "nowhere.invalid:9092"},
    set_as_current=False,
)

START = datetime(2026, 1, 1, 12, tzinfo=UTC)

#: What the handlers were asked, and what they do about it: the last says what happens ever after.
asked: list[str] = []
says: list[Callable[[], object]] = []

HOURS = Policy(name="hours", base=timedelta(hours=1), max_delay=timedelta(hours=9), max_attempts=4)


class Placed(BaseModel):
    order_id: str


class Paid(BaseModel):
    order_id: str


class Packed(BaseModel):
    order_id: str


@app.handler(Placed, domain="order", name="shop.charge", policy=HOURS)
def charge(placed: Placed) -> str:
    asked.append(placed.order_id)
    if says:
        (says.pop(0) if len(says) > 1 else says[0])()
    return f"charged {placed.order_id}"


@app.handler(Paid, domain="order", name="shop.mail")
async def mail(paid: Paid, ctx: Context) -> str:
    await asyncio.sleep(0)
    if says:
        await says[0]()
    app.publish(Packed(order_id=paid.order_id), id=f"{ctx.event.id}-packed")
    return "sent"


@app.handler(Packed, domain="order", name="shop.ship")
def ship(packed: Packed) -> None:
    asked.append(f"ship {packed.order_id}")


@app.task(name="shop.plain")
def plain(number: int) -> int:
    asked.append(f"plain {number}")
    return number + 1


def fails(error: Exception) -> Callable[[], object]:
    """Return what raises *error*."""

    def raise_it() -> None:
        raise error

    return raise_it


class Counted(BaseModel):
    n: int


#: The batches that `count` was given, and the numbers that it refuses.
counted: list[list[int]] = []
uncountable: dict[int, Exception] = {}


@app.handler(Counted, domain="order", name="shop.count", batch=Batch(size=3, wait=60))
def count(them: list[Counted]) -> BatchResult:
    counted.append([one.n for one in them])
    return BatchResult(
        {position: uncountable[one.n] for position, one in enumerate(them) if one.n in uncountable}
    )
