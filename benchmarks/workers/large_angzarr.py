"""Every event has a body of several MiB, which no packing makes much smaller."""

from __future__ import annotations

import os

from pydantic import BaseModel

from angzarr import Angzarr
from workers.environment import BROKER, FOLDER, SHARED

#: Characters of the text in each.
SIZE = int(os.environ["BENCH_LARGE_BYTES"])


class Scanned(BaseModel):
    number: int
    page: str


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)


@app.handler(Scanned, domain="scan", name="bench.large")
def large(event: Scanned) -> None:
    """Leave a file with what came."""
    (FOLDER / f"done-{event.number}").write_text(str(len(event.page)))


def send(number: int) -> None:
    """Publish one event."""
    app.publish(Scanned(number=number, page=os.urandom(SIZE // 2).hex()), root=f"s-{number}")
