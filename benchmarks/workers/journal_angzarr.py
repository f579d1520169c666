"""The same handler on angzarr: claims, owner lease, start count."""

from __future__ import annotations

from pydantic import BaseModel

from angzarr import Angzarr
from workers.environment import BROKER, FOLDER, SHARED
from workers.hold import hold
from workers.journal import Journal

JOURNAL = Journal(FOLDER / "journal")


class Numbered(BaseModel):
    number: int


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)


@app.handler(Numbered, domain="order", name="bench.journal")
def journal(event: Numbered) -> None:
    hold(JOURNAL, event.number)


def send(number: int) -> None:
    """Publish one message."""
    app.publish(Numbered(number=number), root=f"o-{number}")
