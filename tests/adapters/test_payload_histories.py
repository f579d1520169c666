"""Histories of bodies with crashes, on real registers, stores and ledgers: nothing needed goes.

`tests/unit/payloads/test_payload_model.py` plays many more of them in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from tests.adapters.ageing import age_in_redis, age_in_sql
from tests.adapters.sql_sides import PATIENT, emptied

from angzarr.adapters.files.payloads import FilePayloadStore
from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.redis.payload_holders import RedisPayloadHolders
from angzarr.adapters.s3.payloads import S3PayloadStore
from angzarr.adapters.sql.delivery.claim_tables import (
    create_tables,
    payload_holders,
    stored_payloads,
)
from angzarr.adapters.sql.delivery.payload_holders import SqlPayloadHolders
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.clock import Clock
from payload_model.ground import Ground
from payload_model.runs import run
from payload_model.sql_ledger import EntriesInSql
from sqlite_ledger import SqliteDatabase

Grounds = Callable[[Clock], Ground]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], FilePayloadStore]:
    return lambda: FilePayloadStore(tmp_path / uuid.uuid4().hex)


@pytest.fixture
def on_redis(redis_url, folder) -> Iterator[Grounds]:
    """The register on Redis, bodies in a folder, the ledger on SQLite."""
    client = RedisClient(redis_url)

    def ground(clock: Clock) -> Ground:
        holders = RedisPayloadHolders(client, prefix=f"angzarr-{uuid.uuid4().hex}")
        ledger = EntriesInSql(SqliteDatabase(), clock)
        return Ground(
            holders=holders,
            bodies=folder(),
            ledger=ledger,
            released=ledger.released,
            age=lambda span: age_in_redis(client, holders, span),
        )

    yield ground
    client.close()


@pytest.fixture
def on_sqlite(tmp_path, folder) -> Iterator[Grounds]:
    """The register and the ledger each in a file, bodies in a folder."""
    engine = build_engine(f"sqlite:///{tmp_path / 'claims.db'}", power_safe=False)
    yield lambda clock: _in_sql(engine, SqliteDatabase(), folder(), clock)
    engine.dispose()


@pytest.fixture
def on_postgresql(postgresql_url, s3_endpoint) -> Iterator[Grounds]:
    """Register and ledger in one database on PostgreSQL, bodies on S3."""
    engine = build_engine(postgresql_url, timeout=PATIENT, power_safe=False)
    place = {"region": "us-east-1", "endpoint_url": s3_endpoint}
    bucket = f"angzarr-{uuid.uuid4().hex[:10]}"
    s3 = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)

    def ground(clock: Clock) -> Ground:
        bodies = S3PayloadStore(bucket, uuid.uuid4().hex, **place)
        return _in_sql(engine, LedgerDatabase(emptied(engine)), bodies, clock)

    yield ground
    engine.dispose()


def _in_sql(engine, database, bodies, clock) -> Ground:
    create_tables(engine)
    with engine.begin() as connection:
        for table in (payload_holders, stored_payloads):
            connection.execute(table.delete())
    ledger = EntriesInSql(database, clock)
    return Ground(
        holders=SqlPayloadHolders(engine),
        bodies=bodies,
        ledger=ledger,
        released=ledger.released,
        age=lambda span: age_in_sql(engine, span),
    )


@pytest.mark.parametrize(("place", "histories"), [
    ("on_redis", 20), ("on_sqlite", 20), ("on_postgresql", 12),
])  # fmt: skip
def test_no_needed_body_is_deleted_on_real_servers(request, place, histories):
    ground = request.getfixturevalue(place)
    kills = deleted = 0
    for seed in range(histories):
        account = run(seed, rate=0.01, ground=ground)
        assert account.wrong == [], f"history {seed}"
        assert all(account.left.values()), "what is left over is what a crash left held"
        kills, deleted = kills + account.kills, deleted + account.deleted
    assert (kills > 0, deleted > histories) == (True, True), "something happened in them"
