"""What time it is by a claim store that many machines share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.statements import ask_time
from angzarr.errors import StoreUnavailable
from angzarr.settings.settings import load
from angzarr.wiring import stores as wiring

NEAR = timedelta(seconds=30)


def test_redis_is_asked_for_its_time(redis_url: str) -> None:
    client = RedisClient(redis_url)
    assert abs(client.time() - datetime.now(UTC)) < NEAR
    client.close()


def test_a_redis_that_is_away_is_said_to_be() -> None:
    with pytest.raises(StoreUnavailable):
        RedisClient("redis://127.0.0.1:1/0").time()


def test_postgresql_is_asked_for_its_time(postgresql_url: str) -> None:
    engine = build_engine(postgresql_url)
    assert abs(ask_time(engine) - datetime.now(UTC)) < NEAR
    engine.dispose()


@pytest.mark.parametrize(
    ("store", "asked"),
    [
        ("redis://127.0.0.1:1/0", True),
        ("postgresql+psycopg://127.0.0.1:1/x", True),
        ("sqlite:///{folder}/claims.db", False),
        ("memory://", False),
    ],
)
def test_a_store_is_asked_where_its_clock_is_another_machines(
    tmp_path: Path, store: str, *, asked: bool
) -> None:
    settings = load({"store": store.format(folder=tmp_path)})
    claims = wiring.open_claims(settings, "memory://")
    assert (claims.time is not None) == asked
