"""PostgreSQL through asyncpg."""

from __future__ import annotations

from functools import partial
from typing import Any

import asyncpg
from tools.corpus.cases import both, corrupt, defect, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import postgresql, web
from tools.corpus.scenario import scenario

scenario = partial(scenario, needs="postgresql")
STORE = "orders-db"


async def _run(statement: str, *values: Any, url: str = "") -> None:
    line = await asyncpg.connect(url or postgresql.url(), timeout=30, ssl=False)
    try:
        await line.execute(statement, *values)
    finally:
        await line.close()


@scenario(both(STORE, "nobody listens there", "it was restarted"), needs="")
async def down(_order: OrderPlaced) -> None:
    await _run("SELECT 1", url=f"postgresql://shop@{web.LOOPBACK}:{web.closed_port()}/shop")


@scenario(misconfigured("the database in our settings does not exist"))
async def unknown_database(_order: OrderPlaced) -> None:
    await _run("SELECT 1", url=postgresql.unknown_database())


@scenario(misconfigured("our role may not write there"))
async def permission_denied(_order: OrderPlaced) -> None:
    await _run("UPDATE stock SET free = 0", url=postgresql.reader_url())


@scenario(misconfigured("migrations did not run in this database"))
async def unknown_table(_order: OrderPlaced) -> None:
    await _run("SELECT 1 FROM loyalty")


@scenario(defect("the query has one bracket too many"))
async def syntax_error(_order: OrderPlaced) -> None:
    await _run("SELECT (1))")


@scenario(both(STORE, "the statement takes too long", "the reports are done"))
async def statement_timeout(_order: OrderPlaced) -> None:
    await _run("SET statement_timeout = 50; SELECT pg_sleep(2)")


@scenario(rejected("that order is there already"))
async def duplicate(order: OrderPlaced) -> None:
    await _run("INSERT INTO orders VALUES ($1, 'c-12', 3)", order.order_id)


@scenario(rejected("the database refuses a total below zero"))
async def check_violated(order: OrderPlaced) -> None:
    await _run("INSERT INTO orders VALUES ($1, 'c-12', -3)", f"{order.order_id}-2")


@scenario(corrupt("the note is longer than its column"))
async def too_long(order: OrderPlaced) -> None:
    statement = "INSERT INTO orders VALUES ($1, 'c-12', 3, '123456789')"
    await _run(statement, f"{order.order_id}-3")


@scenario(defect("a text is given where the statement takes a number"))
async def wrong_argument(order: OrderPlaced) -> None:
    await _run("UPDATE stock SET free = $1", order.sku)


@scenario(well("an operator ended our connection", STORE, group_events=5))
async def thrown_out(_order: OrderPlaced) -> None:
    await _run("SELECT pg_terminate_backend(pg_backend_pid())")
