"""PostgreSQL that is well and refuses: a wrong query, a rule of the business, damaged data."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session
from tools.corpus.cases import (
    breaker,
    corrupt,
    defect,
    recent,
    rejected,
)
from tools.corpus.events import OrderPlaced
from tools.corpus.places import postgresql
from tools.corpus.places.postgresql import CUSTOMERS, Stock
from tools.corpus.scenario import ORDER
from tools.corpus.scenario import scenario as any_scenario

DB = "orders-db"
CLOSED: dict[str, Any] = {"breakers": breaker(DB, "closed", 0.01)}


scenario = partial(any_scenario, needs="postgresql")


# -- our query is wrong ---------------------------------------------------------------------


@scenario(defect("the query names a column that no migration ever made"))
def unknown_column(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("SELECT totl FROM orders WHERE id = %s", [order.order_id])


@scenario(defect("a comma too many in the query"))
def syntax_error(order: OrderPlaced) -> None:
    with postgresql.engine().connect() as connection:
        connection.execute(text("SELECT free, FROM stock WHERE sku = :sku"), {"sku": order.sku})


@scenario(defect("a parameter of the query is not given"))
def missing_parameter(_order: OrderPlaced) -> None:
    with postgresql.engine().connect() as connection:
        connection.execute(text("SELECT free FROM stock WHERE sku = :sku"), {"number": 7})


@scenario(defect("it goes on in a transaction that had failed"))
def failed_transaction(_order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        try:
            connection.execute("SELECT 1/0")
        except StatementError:
            return
        except psycopg.errors.DivisionByZero:
            connection.execute("SELECT free FROM stock")


# -- a rule says no -------------------------------------------------------------------------


@scenario(
    rejected("this order is there already: it was placed twice", **CLOSED),
    rejected("the same again and again", group_events=80, handler_recent=recent(400, 30)),
)
def order_exists(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute(
            "INSERT INTO orders VALUES (%s, %s, %s)",
            [order.order_id, order.customer_id, order.total],
        )


@scenario(rejected("this customer is there already"))
def customer_exists(order: OrderPlaced) -> None:
    with postgresql.engine().begin() as connection:
        connection.execute(CUSTOMERS.insert().values(id=order.customer_id))


@scenario(rejected("the database knows the rule that no total is negative", **CLOSED))
def total_negative(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("INSERT INTO orders VALUES ('o-9', %s, -3)", [order.customer_id])


@scenario(
    rejected("nobody is known by this customer number"), event={**ORDER, "customer_id": "c-0"}
)
def customer_unknown(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("INSERT INTO orders VALUES ('o-9', %s, 3)", [order.customer_id])


@scenario(rejected("a rule in the database: large orders need approval"))
def needs_approval(order: OrderPlaced) -> None:
    with postgresql.engine().begin() as connection:
        connection.execute(
            text("INSERT INTO orders VALUES ('o-9', :who, 1000)"), {"who": order.customer_id}
        )


@scenario(rejected("that sku is not sold here"), event={**ORDER, "sku": "SKU-0"})
def no_such_row(order: OrderPlaced) -> None:
    with Session(postgresql.engine()) as session:
        session.get_one(Stock, order.sku)


# -- the event's data fits no column --------------------------------------------------------


@scenario(corrupt("the event brings no customer: null where one must be", **CLOSED))
def customer_null(_order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("INSERT INTO orders VALUES ('o-9', NULL, 3)")


@scenario(corrupt("the note is longer than any note can be"))
def note_too_long(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("UPDATE orders SET note = %s", [f"{order.sku} and much more"])


@scenario(corrupt("the thirtieth of February"))
def no_such_date(_order: OrderPlaced) -> None:
    with postgresql.engine().begin() as connection:
        connection.execute(text("UPDATE orders SET placed_on = '2026-02-30'"))


@scenario(corrupt("a total beyond every integer"), event={**ORDER, "total": 99_999_999_999})
def total_out_of_range(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("UPDATE orders SET total = %s::bigint", [order.total])


@scenario(
    corrupt("a zero byte in the sku, which no text can have"), event={**ORDER, "sku": "SKU\x007"}
)
def zero_byte(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("SELECT free FROM stock WHERE sku = %s", [order.sku])
