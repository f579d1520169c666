"""The app of the workers whose events are numbers, how one is sent, and which became letters."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from angzarr import Angzarr
from workers.environment import BROKER, SHARED


class Numbered(BaseModel):
    number: int


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)


def send(number: int) -> None:
    """Publish one event."""
    app.publish(Numbered(number=number), root=f"o-{number}")


def letters() -> list[int]:
    """Return whose letters are in the queue, which is empty afterwards."""
    queue = app.ops.open_dead_letter_queue()
    found: list[int] = []
    while receipts := queue.receive(["order"], limit=100, wait=timedelta(seconds=2)):
        queue.done(receipts)
        events = [receipt.letter.event for receipt in receipts if receipt.letter]
        found += [event.data["number"] for event in events if event]
    queue.close()
    return found
