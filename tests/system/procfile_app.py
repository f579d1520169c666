"""The app that the Procfile runs in its test: the road's, and beat rings every second."""

from __future__ import annotations

import time

from pydantic import BaseModel
from road_app import PREFIX, Thing, app, note  # noqa: F401 - the test publishes Things

app.conf.beat_schedule = {"clock": {"task": "procfile_app.ring", "schedule": 1.0}}


class Struck(BaseModel):
    second: int


@app.task
def ring() -> None:
    """Publish the second's own event, however often it is rung for."""
    second = int(time.time())
    note("ring", second=second)
    app.publish(Struck(second=second), id=f"{PREFIX}-struck-{second}")


@app.handler(Struck, domain="thing")
def struck(event: Struck) -> None:
    note("struck", second=event.second)
