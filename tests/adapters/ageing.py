"""Lets time pass for registers of bodies, whose servers have clocks of their own."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine, select, update

from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.redis.payload_holders import RedisPayloadHolders
from angzarr.adapters.sql.delivery.claim_tables import stored_payloads
from angzarr.payloads.collector import PayloadState


def age_in_redis(client: RedisClient, holders: RedisPayloadHolders, span: timedelta) -> None:
    """Let *span* pass for all bodies of *holders*."""
    for state in PayloadState:
        key = f"{holders.base}:{state.value}"
        for uri in client.execute("ZRANGE", key, 0, -1):
            client.execute("ZINCRBY", key, -int(span.total_seconds() * 1000), uri)


def age_in_sql(engine: Engine, span: timedelta) -> None:
    """Let *span* pass for all bodies in the database of *engine*."""
    columns = stored_payloads.c
    with engine.begin() as connection:
        for uri, since in connection.execute(select(columns.uri, columns.since)).all():
            one = update(stored_payloads).where(columns.uri == uri)
            connection.execute(one.values(since=since - span))
