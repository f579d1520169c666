"""A read model with a row for each event: as a projection, and as a bare loop without one.

`python -m workers.entries BOOKS EACH` is the loop; it prints the seconds that it took.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import islice

import sqlalchemy as sa
from harness.book_fill import DOMAIN, address_of
from pydantic import BaseModel

from angzarr import Angzarr, Projection, handles

#: The database with books, lanes and the read model.
DATABASE = os.environ["ANGZARR_BOOKS"]
_AT_ONCE = 1_000

ENTRIES = sa.Table(
    "entries",
    sa.MetaData(),
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("cents", sa.BigInteger, nullable=False),
)
ADD = sa.insert(ENTRIES)

app = Angzarr("bench", broker="memory://")


class Booked(BaseModel):
    account: str
    cents: int


@app.projection("entries", domains=DOMAIN)
class Entries(Projection):
    tables = (ENTRIES,)

    @handles(Booked)
    def booked(self, event: Booked) -> None:
        row = {"account": event.account, "sequence": self.event.sequence, "cents": event.cents}
        self.connection.execute(ADD, row)


def insert_all(books: int, each: int) -> float:
    """Insert the rows one by one, with a commit after every thousand; return the seconds."""
    rows = (
        {"account": address_of(book).root, "sequence": sequence, "cents": sequence}
        for book in range(books)
        for sequence in range(each)
    )
    engine = sa.create_engine(DATABASE)
    began = time.perf_counter()
    with engine.connect() as connection:
        while some := list(islice(rows, _AT_ONCE)):
            with connection.begin():
                for row in some:
                    connection.execute(ADD, row)
    took = time.perf_counter() - began
    engine.dispose()
    return took


if __name__ == "__main__":
    print(insert_all(*map(int, sys.argv[1:])))
