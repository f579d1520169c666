"""What all who keep totals share: the app, the event, and the statement that an event costs.

Every event adds to the row of its aggregate. All guarantees are on, telemetry is off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import sqlalchemy as sa
from pydantic import BaseModel

from angzarr import Angzarr, Publication
from workers.environment import BROKER, FOLDER, SHARED
from workers.stamps import Stamps

#: The database with the read model and the lanes.
DATABASE = os.environ["ANGZARR_ORDERING__URL"]
#: How many aggregates the events are dealt to in turn: neighbours in the queue are never of one.
AGGREGATES = int(os.environ["BENCH_AGGREGATES"])
STAMPS = Stamps(FOLDER / "stamps")
_AT_ONCE = 2_000

ADD = sa.text(
    "INSERT INTO totals (account, events, cents) VALUES (:account, 1, :cents)"
    " ON CONFLICT (account) DO UPDATE SET events = totals.events + 1,"
    " cents = totals.cents + excluded.cents"
)


class Booked(BaseModel):
    number: int
    account: str
    cents: int


app = Angzarr("bench", broker=BROKER)
app.conf.update(SHARED)
# The worker logs warnings only, but every fact is written.
logging.getLogger("angzarr.facts").setLevel(logging.INFO)


def add(connection: sa.Connection, event: Booked) -> None:
    """Write what *event* says."""
    STAMPS.set(event.number)
    connection.execute(ADD, {"account": event.account, "cents": event.cents})


def send_many(numbers: Iterable[int]) -> None:
    """Publish the events of these numbers, each with its place in its aggregate."""
    batch: list[Publication] = []
    for number in numbers:
        sequence, account = divmod(number, AGGREGATES)
        event = Booked(number=number, account=f"a-{account}", cents=7)
        batch.append(Publication(event, root=event.account, sequence=sequence))
        if len(batch) == _AT_ONCE:
            app.publish_many(batch, domain="account")
            batch = []
    if batch:
        app.publish_many(batch, domain="account")
