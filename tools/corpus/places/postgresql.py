"""PostgreSQL: a database of this run's own, a role that may little, and ways to fail."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool
from tools.corpus.normal import show_port
from tools.corpus.places.servers import address, own_name

_TABLES = """
CREATE TABLE customers (id text PRIMARY KEY);
CREATE TABLE orders (
    id text PRIMARY KEY,
    customer_id text NOT NULL REFERENCES customers,
    total integer NOT NULL CONSTRAINT orders_total_positive CHECK (total >= 0),
    note varchar(8),
    placed_on date
);
CREATE TABLE stock (sku text PRIMARY KEY, free integer NOT NULL);
CREATE TABLE audit (line text);
INSERT INTO customers VALUES ('c-12');
INSERT INTO orders VALUES ('o-4711', 'c-12', 3);
INSERT INTO stock VALUES ('SKU-7', 5), ('SKU-8', 5);
CREATE FUNCTION refuse_large() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.total > 999 THEN RAISE EXCEPTION 'orders above 999 need approval'; END IF;
   RETURN NEW; END $$;
CREATE TRIGGER large BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse_large();
"""


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"

    sku: Mapped[str] = mapped_column(primary_key=True)
    free: Mapped[int]


CUSTOMERS = Table("customers", MetaData(), Column("id", String, primary_key=True))


@functools.cache
def _server() -> Any:
    return urlsplit(address("postgresql"))._replace(scheme="postgresql")


@functools.cache
def _database() -> str:
    name = own_name()
    show_port(_server().port, 5432)
    with psycopg.connect(_server().geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        connection.execute(f"CREATE ROLE {name}_reader LOGIN PASSWORD 'right'")
        connection.execute(f"ALTER ROLE {name}_reader CONNECTION LIMIT 1")
    with psycopg.connect(_at(name), autocommit=True) as connection:
        connection.execute(_TABLES)
        connection.execute(f"GRANT SELECT ON stock TO {name}_reader")
    atexit.register(_drop, name)
    return name


def _drop(name: str) -> None:
    with psycopg.connect(_server().geturl(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"DROP ROLE IF EXISTS {name}_reader")


def _at(database: str, user: str = "", password: str = "") -> str:
    server = _server()
    login = f"{user}:{password}@" if user else f"{server.username}@"
    return f"postgresql://{login}{server.hostname}:{server.port}/{database}"


def url(user: str = "", password: str = "") -> str:
    return _at(_database(), user, password)


def reader_url(password: str = "right") -> str:
    """Return the address for a role that may read the stock, on one connection at most."""
    return url(f"{_database()}_reader", password)


def unknown_database() -> str:
    _database()
    return _at("shop_staging")


def unknown_role() -> str:
    return url("shop_nobody", "x")


def connect(**options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(url(), connect_timeout=30, **options)


def engine(address: str = "") -> Engine:
    """Return an engine that keeps no connection."""
    full = (address or url()).replace("postgresql://", "postgresql+psycopg://")
    return create_engine(full, poolclass=NullPool)


@contextmanager
def held(statement: str) -> Iterator[None]:
    """Keep what *statement* locks by another connection."""
    with connect() as other:
        other.execute(statement)
        yield
        other.rollback()


def deadlock() -> None:
    """Take two rows crosswise with another connection; this one is the victim."""
    with connect() as ours, connect() as other:
        other.execute("SET deadlock_timeout = '10s'")
        ours.execute("SET deadlock_timeout = '50ms'")
        ours.execute("UPDATE stock SET free = free WHERE sku = 'SKU-7'")
        other.execute("UPDATE stock SET free = free WHERE sku = 'SKU-8'")
        crossing = threading.Thread(
            target=other.execute, args=("UPDATE stock SET free = free WHERE sku = 'SKU-7'",)
        )
        crossing.start()
        try:
            _wait_for_lock()
            ours.execute("UPDATE stock SET free = free WHERE sku = 'SKU-8'")
        finally:
            ours.rollback()
            crossing.join()
            other.rollback()


def _wait_for_lock() -> None:
    with connect(autocommit=True) as watcher:
        for _ in range(500):
            row = watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            if row and row[0]:
                return


def killed() -> None:
    """Be thrown out by an operator in the middle of a transaction."""
    with connect() as ours, connect(autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s)", [ours.info.backend_pid])
        ours.execute("SELECT free FROM stock")
