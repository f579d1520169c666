"""Handlers that call a dependency behind a breaker that the fleet shares; all as by default."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from angzarr import Angzarr
from workers.dependent import handle
from workers.environment import BROKER, SHARED


class Numbered(BaseModel):
    number: int


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)


@app.handler(Numbered, domain="order", breaker="dep", name="bench.dependent")
def dependent(event: Numbered) -> None:
    handle(event.number)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(Numbered(number=number), root=f"o-{number}")


def letters() -> list[int]:
    """Return whose letters are in the queue, which is empty afterwards."""
    queue, found = app.open_dead_letter_queue(), []
    while receipts := queue.receive(["order"], limit=100, wait=timedelta(seconds=2)):
        queue.done(receipts)
        found += [receipt.letter.event.data["number"] for receipt in receipts]
    queue.close()
    return found


if __name__ == "__main__":
    print(*letters())
