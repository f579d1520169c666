"""Telephone bills: each invoice is charged at the prices that were in force when it was due.

Prices are a configuration with versions. An invoice is pinned to one by its first run, and every
retry and replay bills by that, weeks later, too. The gateway takes a fee for each request, also for
one that fails: `ctx.cost` writes it down. A blocked card is charged once a person has unblocked it.
"""

from __future__ import annotations

import os
import sqlite3
from decimal import Decimal

from outside import System
from pydantic import BaseModel, Field

from angzarr import Angzarr, Context, GiveUp

app = Angzarr("billing")
gateway = System("gateway")

CURRENCY = "EUR"
#: What is charged, and to whom: the prices of a request and of a minute, as exact text.
PRICING = "pricing"


class InvoiceDue(BaseModel):
    customer: str
    minutes: int = Field(gt=0)
    card_blocked: bool = False


@app.handler(InvoiceDue, domain="billing", name="billing.charge")
def charge(invoice: InvoiceDue, ctx: Context) -> None:
    prices = ctx.config(PRICING)
    version = ctx.config_version(PRICING)
    desk.note_request(ctx.event.id, version)
    ctx.cost(
        prices["request"], CURRENCY, to=gateway.name, operation="charge",
        units={"requests": 1}, config=PRICING,
    )  # fmt: skip
    gateway.request(ctx.event.id.partition(":")[2])
    if invoice.card_blocked and not desk.is_unblocked(invoice.customer):
        raise GiveUp("the card is blocked")
    desk.bill(ctx.event.id, version, invoice.minutes * Decimal(prices["minute"]))


class Desk:
    """The desk's own file, for all processes of this host; an invoice is billed once."""

    def note_request(self, invoice: str, version: str) -> None:
        """Note what the gateway will ask for."""
        with self._open() as file:
            file.execute("insert into requests values (?, ?)", (invoice, version))

    def bill(self, invoice: str, version: str, amount: Decimal) -> None:
        """Bill an invoice; again is harmless."""
        with self._open() as file:
            row = (invoice, version, str(amount))
            file.execute("insert or ignore into bills values (?, ?, ?)", row)

    def unblock(self, customer: str) -> None:
        """Let the card of a customer be charged from now on."""
        with self._open() as file:
            file.execute("insert or ignore into unblocked values (?)", (customer,))

    def is_unblocked(self, customer: str) -> bool:
        """True if a person has unblocked the card."""
        with self._open() as file:
            found = file.execute("select 1 from unblocked where customer = ?", (customer,))
            return found.fetchone() is not None

    def bills(self) -> dict[str, tuple[str, Decimal]]:
        """The version and the amount of each bill, by invoice."""
        with self._open() as file:
            rows = file.execute("select * from bills").fetchall()
        return {invoice: (version, Decimal(amount)) for invoice, version, amount in rows}

    def requests(self) -> list[tuple[str, str]]:
        """The invoice and the version of each request to the gateway."""
        with self._open() as file:
            return file.execute("select * from requests").fetchall()

    @staticmethod
    def _open() -> _Connection:
        return _Connection(os.environ.get("OUTSIDE_FILE", ":memory:") + ".desk")


class _Connection:
    """A connection for one step."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __enter__(self) -> sqlite3.Connection:
        self._opened = sqlite3.connect(self._file, timeout=30, isolation_level=None)
        for table in (
            "requests (invoice, version)",
            "bills (invoice primary key, version, amount)",
            "unblocked (customer primary key)",
        ):
            self._opened.execute(f"create table if not exists {table}")
        return self._opened

    def __exit__(self, *_error: object) -> None:
        self._opened.close()


desk = Desk()
