"""MySQL through PyMySQL, and by SQLAlchemy."""

from __future__ import annotations

from typing import Any

import pymysql
import sqlalchemy as sa
from tools.corpus.cases import both, corrupt, defect, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import mysql, web
from tools.corpus.scenario import scenario

STORE = "orders-db"


def _run(port: int, statement: str = "UPDATE stock SET free = free - 1") -> None:
    options: dict[str, Any] = {"user": "shop", "password": "x", "database": "shop"}
    with pymysql.connect(host=web.LOOPBACK, port=port, connect_timeout=30, **options) as line:
        line.cursor().execute(statement)


def _engine(port: int) -> sa.Engine:
    url = f"mysql+pymysql://shop:x@{web.LOOPBACK}:{port}/shop"
    return sa.create_engine(url, poolclass=sa.NullPool, _initialize=False)


@scenario(both(STORE, "nobody listens there", "it was restarted"))
def down(_order: OrderPlaced) -> None:
    _run(web.closed_port())


@scenario(misconfigured("the password in our settings is wrong"))
def wrong_password(_order: OrderPlaced) -> None:
    said = "Access denied for user 'shop'@'10.0.3.7' (using password: YES)"
    _run(mysql.refusing(1045, "28000", said))


@scenario(misconfigured("the password in our settings is wrong, and SQLAlchemy wraps the error"))
def wrong_password_sqlalchemy(_order: OrderPlaced) -> None:
    said = "Access denied for user 'shop'@'10.0.3.7' (using password: YES)"
    _engine(mysql.refusing(1045, "28000", said)).connect()


@scenario(misconfigured("the database in our settings does not exist"))
def unknown_database(_order: OrderPlaced) -> None:
    _run(mysql.refusing(1049, "42000", "Unknown database 'shop'"))


@scenario(both(STORE, "all its places for clients are taken", "there is room again"))
def too_many_connections(_order: OrderPlaced) -> None:
    _run(mysql.refusing(1040, "08004", "Too many connections"))


@scenario(misconfigured("migrations did not run in this database"))
def unknown_table(_order: OrderPlaced) -> None:
    _run(mysql.failing(1146, "42S02", "Table 'shop.stock' doesn't exist"))


@scenario(misconfigured("our user may not change that table"))
def command_denied(_order: OrderPlaced) -> None:
    said = "UPDATE command denied to user 'shop'@'10.0.3.7' for table 'stock'"
    _run(mysql.failing(1142, "42000", said))


@scenario(defect("a column that no migration ever made"))
def unknown_column(_order: OrderPlaced) -> None:
    said = "Unknown column 'pirce' in 'field list'"
    _run(mysql.failing(1054, "42S22", said), "SELECT pirce FROM stock")


@scenario(well("two workers took two rows crosswise", STORE, group_events=3))
def deadlock(_order: OrderPlaced) -> None:
    said = "Deadlock found when trying to get lock; try restarting transaction"
    _run(mysql.failing(1213, "40001", said))


@scenario(both(STORE, "a long report holds the rows", "the report is done"))
def lock_timeout(_order: OrderPlaced) -> None:
    said = "Lock wait timeout exceeded; try restarting transaction"
    with _engine(mysql.failing(1205, "HY000", said)).connect() as line:
        line.execute(sa.text("UPDATE stock SET free = free - 1"))


@scenario(ill("the connection broke in the middle of a query", STORE))
def lost(_order: OrderPlaced) -> None:
    _run(mysql.hanging_up())


@scenario(both(STORE, "it is a replica during a failover: read-only", "the failover is over"))
def read_only(_order: OrderPlaced) -> None:
    said = "The MySQL server is running with the --read-only option so it cannot execute this"
    _run(mysql.failing(1290, "HY000", f"{said} statement"))


@scenario(rejected("that order is there already"))
def duplicate(_order: OrderPlaced) -> None:
    _run(mysql.failing(1062, "23000", "Duplicate entry 'o-4711' for key 'orders.PRIMARY'"))


@scenario(corrupt("the note is longer than its column"))
def too_long(_order: OrderPlaced) -> None:
    _run(mysql.failing(1406, "22001", "Data too long for column 'note' at row 1"))
