"""Databases in ways that the other themes do not have: settings, quotas, standbys, files."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tools.corpus.cases import both, corrupt, defect, misconfigured, rejected, unseen, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import folders, postgresql, web
from tools.corpus.scenario import scenario

STORE = "orders-db"


@scenario(misconfigured("an option of the address is none of the client's"))
def unknown_option(_order: OrderPlaced) -> None:
    psycopg.connect(f"postgresql://shop@{web.LOOPBACK}/shop?timeuot=3")


@scenario(misconfigured("the schema that our settings name is missing"), needs="postgresql")
def no_schema(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("CREATE TABLE billing.t (a int)")


@scenario(misconfigured("the sequence was never made here"), needs="postgresql")
def no_sequence(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("SELECT nextval('order_numbers')")


@scenario(misconfigured("an extension of the database is not installed"), needs="postgresql")
def no_extension(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("CREATE EXTENSION postgis_shop")


@scenario(rejected("a customer with orders cannot be removed"), needs="postgresql")
def still_referenced(order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("DELETE FROM customers WHERE id = %s", [order.customer_id])


@scenario(both(STORE, "somebody alters the table for an hour", "it is altered"), needs="postgresql")
def table_locked(_order: OrderPlaced) -> None:
    with (
        postgresql.held("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE"),
        postgresql.connect() as line,
    ):
        line.execute("SET lock_timeout = '50ms'")
        line.execute("SELECT 1 FROM audit")


@scenario(corrupt("the JSON in one event's field is none"), needs="postgresql")
def no_json(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("SELECT %s::jsonb", ["{order"])


@scenario(corrupt("the discount of one event divides by nothing"), needs="postgresql")
def zero_division(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("SELECT 1 / %s", [0])


@scenario(defect("the statement is sent after its transaction broke"), needs="postgresql")
def ambiguous(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("SELECT id FROM orders, customers")


@scenario(defect("it uses a connection that it closed"), needs="postgresql")
def closed_by_us(_order: OrderPlaced) -> None:
    line = postgresql.connect()
    line.close()
    line.execute("SELECT 1")


@scenario(defect("a dictionary is given where the client takes a value"), needs="postgresql")
def no_such_type(_order: OrderPlaced) -> None:
    with postgresql.connect() as line:
        line.execute("SELECT %s", [{"a": 1}])


@scenario(well("two workers changed one row at once", STORE, group_events=2), needs="postgresql")
def serialization(_order: OrderPlaced) -> None:
    with postgresql.connect() as ours, postgresql.connect() as other:
        ours.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        ours.execute("SELECT 1 FROM customers")
        other.execute("UPDATE customers SET id = id WHERE id = 'c-12'")
        other.commit()
        ours.execute("UPDATE customers SET id = id WHERE id = 'c-12'")


@scenario(misconfigured("the database file is not one: somebody mounted another"))
def no_database(_order: OrderPlaced) -> None:
    file = folders.fresh() / "stock.db"
    file.write_bytes(b"this is a text, and not a database at all" * 99)
    sqlite3.connect(file).execute("SELECT 1 FROM stock")


@scenario(misconfigured("migrations did not run in this file"))
def no_table_sqlite(_order: OrderPlaced) -> None:
    sqlite3.connect(":memory:").execute("SELECT 1 FROM stock")


@scenario(unseen("another process writes into the file, and no breaker is there"))
def busy_sqlite(_order: OrderPlaced) -> None:
    file = folders.fresh() / "stock.db"
    first, second = (sqlite3.connect(file, timeout=0.05) for _ in range(2))
    first.execute("BEGIN EXCLUSIVE")
    second.execute("BEGIN EXCLUSIVE")


@scenario(rejected("the same voucher twice: the index says no"))
def unique_sqlite(_order: OrderPlaced) -> None:
    line = sqlite3.connect(":memory:")
    line.execute("CREATE TABLE vouchers (id TEXT PRIMARY KEY)")
    line.executemany("INSERT INTO vouchers VALUES (?)", [("v",), ("v",)])


@scenario(defect("it asks for a column of the result that is none"))
def no_such_result(_order: OrderPlaced) -> Any:
    with sa.create_engine("sqlite://").connect() as line:
        return line.execute(sa.text("SELECT 1 AS a")).one().b


@scenario(defect("a value for the statement is missing"))
def no_value(_order: OrderPlaced) -> None:
    with Session(sa.create_engine("sqlite://")) as session:
        session.execute(sa.text("SELECT :sku"))
