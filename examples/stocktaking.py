"""A warehouse that counts its stock every minute: `celery -A application beat` rings.

Beat may ring twice, as two of them do for a moment whenever one takes over from the other. So the
ring only publishes an event whose id is that of its minute: it is handled once, whoever rang.
"""

from __future__ import annotations

from datetime import UTC, datetime

from application import app
from celery.schedules import crontab
from outside import System
from pydantic import BaseModel

warehouse = System("warehouse")

# Every minute by the clock, so that all beats ring in the same one. A span would count from each
# one's own start.
app.conf.beat_schedule = {"stocktaking": {"task": "stocktaking.ring", "schedule": crontab()}}


class CountStock(BaseModel):
    minute: datetime


@app.task
def ring() -> str:
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    event = app.publish(CountStock(minute=minute), id=f"count-stock-{minute:%Y-%m-%dT%H:%MZ}")
    return event.id


@app.handler(CountStock, domain="stock")
def count(due: CountStock) -> None:
    warehouse.request(f"count {due.minute}")
