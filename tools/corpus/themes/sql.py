"""PostgreSQL through psycopg and SQLAlchemy."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select, text
from sqlalchemy.orm import Session
from tools.corpus.cases import (
    NEXT_RELEASE,
    RELEASE,
    both,
    breaker,
    ill,
    misconfigured,
    unseen,
    well,
)
from tools.corpus.events import OrderPlaced
from tools.corpus.places import postgresql, startup, web
from tools.corpus.places.postgresql import Stock
from tools.corpus.scenario import scenario as any_scenario

DB = "orders-db"
CLOSED: dict[str, Any] = {"breakers": breaker(DB, "closed", 0.01)}


scenario = partial(any_scenario, needs="postgresql")


# -- it is away, busy or fails over ---------------------------------------------------------


@scenario(both(DB, "the server is down", "it was restarted"), needs="")
def down(order: OrderPlaced) -> None:
    where = f"postgresql://shop@{web.LOOPBACK}:{web.closed_port()}/shop"
    psycopg.connect(where, connect_timeout=30)


@scenario(ill("the server is down", DB), unseen("the server is down; nobody watches it"), needs="")
def down_sqlalchemy(order: OrderPlaced) -> None:
    where = f"postgresql+psycopg://shop@{web.LOOPBACK}:{web.closed_port()}/shop"
    with create_engine(where).connect() as connection:
        connection.execute(text("SELECT 1"))


@scenario(both(DB, "an operator ends connections for a failover", "the failover is over"))
def thrown_out(_order: OrderPlaced) -> None:
    postgresql.killed()


@scenario(both(DB, "all its connections are taken", "the pool was made smaller"))
def too_many_connections(_order: OrderPlaced) -> None:
    where = postgresql.reader_url()
    with psycopg.connect(where, connect_timeout=30), psycopg.connect(where, connect_timeout=30):
        pass


@scenario(well("two orders took the same rows crosswise, which passes", DB, group_events=3), ill(
    "a new job locks the stock for hours", DB, breakers=breaker(DB, "half_open", 0.5)
))  # fmt: skip
def deadlock(_order: OrderPlaced) -> None:
    postgresql.deadlock()


@scenario(well("two orders changed one row at a time, which passes", DB, group_events=5))
def serialization(_order: OrderPlaced) -> None:
    with postgresql.connect() as ours, postgresql.connect(autocommit=True) as other:
        ours.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        ours.execute("SELECT free FROM stock WHERE sku = 'SKU-7'").fetchone()
        other.execute("UPDATE stock SET free = free WHERE sku = 'SKU-7'")
        ours.execute("UPDATE stock SET free = free - 1 WHERE sku = 'SKU-7'")


@scenario(both(DB, "a statement took too long: the disk is slow", "the backup is over"))
def statement_timeout(_order: OrderPlaced) -> None:
    with postgresql.connect(options="-c statement_timeout=50") as connection:
        connection.execute("SELECT pg_sleep(5)")


@scenario(both(DB, "a migration holds the table", "the migration is over"))
def lock_timeout(order: OrderPlaced) -> None:
    with (
        postgresql.held("LOCK TABLE stock IN ACCESS EXCLUSIVE MODE"),
        postgresql.connect(options="-c lock_timeout=50") as connection,
    ):
        connection.execute("UPDATE stock SET free = 0 WHERE sku = %s", [order.sku])


@scenario(ill("a row is locked by a job that hangs", DB))
def row_locked(order: OrderPlaced) -> None:
    with (
        postgresql.held("SELECT 1 FROM stock FOR UPDATE"),
        postgresql.engine().begin() as connection,
    ):
        connection.execute(
            text("SELECT free FROM stock WHERE sku = :sku FOR UPDATE NOWAIT"), {"sku": order.sku}
        )


@scenario(both(DB, "a write met the standby while it took over", "the failover is over"))
def read_only(_order: OrderPlaced) -> None:
    with postgresql.connect(options="-c default_transaction_read_only=on") as connection:
        connection.execute("INSERT INTO audit VALUES ('x')")


@scenario(both(DB, "nobody gets a connection from our own pool", "the slow report is over"))
def pool_timeout(_order: OrderPlaced) -> None:
    where = postgresql.url().replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(where, pool_size=1, max_overflow=0, pool_timeout=0.1)
    try:
        with engine.connect(), engine.connect():
            pass
    finally:
        engine.dispose()


@scenario(well("another worker changed the row first, five times: a hot row", DB, group_events=2))
def stale_row(order: OrderPlaced) -> None:
    with Session(postgresql.engine()) as session, session.no_autoflush:
        row = session.get_one(Stock, order.sku)
        row.free -= 1
        session.execute(text("DELETE FROM stock WHERE sku = :sku"), {"sku": order.sku})
        session.flush()


# -- it is set up wrongly -------------------------------------------------------------------


@scenario(misconfigured("the database in our settings does not exist"))
def unknown_database(_order: OrderPlaced) -> None:
    psycopg.connect(postgresql.unknown_database(), connect_timeout=30)


@scenario(misconfigured("the database in our settings does not exist"))
def unknown_database_sqlalchemy(_order: OrderPlaced) -> None:
    with postgresql.engine(postgresql.unknown_database()).connect():
        pass


@scenario(misconfigured("the role in our settings does not exist"))
def unknown_role(_order: OrderPlaced) -> None:
    psycopg.connect(postgresql.unknown_role(), connect_timeout=30)


@scenario(misconfigured("the password in our settings is wrong"), needs="")
def wrong_password(_order: OrderPlaced) -> None:
    said = ("28P01", 'password authentication failed for user "shop"')
    psycopg.connect(startup.refusing(*said), connect_timeout=30)


@scenario(both(DB, "the server has just been started", "the server has started"), needs="")
def starting_up(_order: OrderPlaced) -> None:
    said = ("57P03", "the database system is starting up")
    psycopg.connect(startup.refusing(*said), connect_timeout=30)


@scenario(misconfigured("this host is not let in by the server's settings"), needs="")
def host_not_let_in(_order: OrderPlaced) -> None:
    said = ("28000", 'no pg_hba.conf entry for host "10.0.0.7", user "shop", database "shop"')
    psycopg.connect(startup.refusing(*said), connect_timeout=30)


@scenario(misconfigured("the host name in our settings is misspelt"), needs="")
def unknown_database_host(_order: OrderPlaced) -> None:
    psycopg.connect("postgresql://shop@db.internal.invalid/shop", connect_timeout=30)


@scenario(misconfigured("our role may not write the table", **CLOSED))
def permission_denied(order: OrderPlaced) -> None:
    with psycopg.connect(postgresql.reader_url()) as connection:
        connection.execute("DELETE FROM stock WHERE sku = %s", [order.sku])


@scenario(
    misconfigured(
        "the table comes with a migration that this database never had: the code is right",
        running_releases=(RELEASE, NEXT_RELEASE),
    )
)
def unknown_table(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("SELECT 1 FROM loyalty_points WHERE customer = %s", [order.customer_id])


@scenario(misconfigured("the same through SQLAlchemy"))
def unknown_table_sqlalchemy(_order: OrderPlaced) -> None:
    with postgresql.engine().connect() as connection:
        connection.execute(select(Table("loyalty_points", MetaData(), Column("id", Integer))))


@scenario(misconfigured("an extension of the database was not installed: its function is missing"))
def unknown_function(order: OrderPlaced) -> None:
    with postgresql.connect() as connection:
        connection.execute("SELECT similarity(%s::text, 'SKU')", [order.sku])
