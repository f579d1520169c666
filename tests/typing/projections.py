"""Projections as a type checker must accept them: read by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, assert_type

from pydantic import BaseModel
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text

from angzarr import Angzarr, Category, Event, Policy, Projection, handles
from angzarr.resilience import ExponentialBackoff, Filtered, Jitter, NoRetry

app = Angzarr("orders", broker="memory://")

TOTALS = Table("order_totals", MetaData(), Column("root", Text), Column("total", Integer))


class OrderPlaced(BaseModel):
    total: int


class OrderShipped(BaseModel): ...


@app.projection("order-totals", domains="order", breaker="reports", soft_time_limit=30)
class OrderTotals(Projection):
    retry_policy = ExponentialBackoff(max_retries=5, first_delay=1)
    retry_policies: ClassVar[Mapping[Any, Policy | str]] = {
        OrderShipped: NoRetry(),
        "order.cancelled": "webhook",
    }
    tables = ("order_lines", TOTALS)

    connection: Connection

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> None:
        assert_type(self.event, Event)
        self.connection.execute(TOTALS.insert().values(root=self.event.root, total=event.total))

    @handles(OrderShipped)
    @handles("order.cancelled")
    def ended(self, _event: object) -> None: ...


@app.projection(
    "parcels",
    domains=["order", "parcel"],
    queue="views",
    first_sequence=1,
    retry_policy=Filtered(
        ExponentialBackoff(max_delay=timedelta(minutes=5), jitter=Jitter.FULL),
        retry_on=(TimeoutError, Category.CONFLICT, "transient"),
    ),
)
class Parcels(Projection):
    retry_policy = "projection"

    @handles(OrderShipped)
    def shipped(self, _event: OrderShipped) -> None: ...

    def _truncate_read_models(self) -> None:
        self.connection.execute(TOTALS.delete())


assert_type(NoRetry(), Policy)
assert_type(OrderTotals, type[OrderTotals])
assert_type(app._context.projections["parcels"], type[Projection])
