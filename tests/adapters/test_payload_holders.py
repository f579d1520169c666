"""The register of bodies in each claim store, on its real server."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis
from tests.adapters.ageing import age_in_redis, age_in_sql
from tests.adapters.sql_sides import PATIENT, OnPostgresql, OnSql, OnSqlite
from tests.contracts.fact_outbox import claimed
from tests.contracts.idempotency import fresh
from tests.contracts.payload_holders import PayloadHoldersContract, counts, hold

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.adapters.redis.idempotency import RedisIdempotencyStore
from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.sql.delivery.claim_tables import (
    create_tables,
    fact_outbox,
    payload_holders,
    stored_payloads,
)
from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore
from angzarr.adapters.sql.delivery.payload_holders import SqlPayloadHolders
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import PayloadHold
from angzarr.resilience.idempotency import AlreadyCompleted, Claim, ClaimEnd, Complete
from angzarr.testing import FakeClock


class TestMemoryPayloadHolders(PayloadHoldersContract):
    @pytest.fixture
    def clock(self):
        return FakeClock()

    @pytest.fixture
    def store(self, clock):
        return MemoryIdempotencyStore(MemoryOwnerLeases(clock), clock=clock)

    @pytest.fixture
    def holders(self, store):
        return store.holders

    @pytest.fixture
    def age(self, clock):
        return clock.advance


class SqlPayloadHoldersContract(OnSql, PayloadHoldersContract):
    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT, power_safe=False)
        create_tables(engine)
        self.empty(engine)  # other suites leave rows in the same database
        yield engine
        self.empty(engine)
        engine.dispose()

    @staticmethod
    def empty(engine):
        with engine.begin() as connection:
            for table in (fact_outbox, payload_holders, stored_payloads):
                connection.execute(table.delete())

    @pytest.fixture
    def store(self, engine):
        return SqlIdempotencyStore(engine)

    @pytest.fixture
    def holders(self, engine):
        return SqlPayloadHolders(engine)

    @pytest.fixture
    def age(self, engine):
        return lambda span: age_in_sql(engine, span)


class TestSqlitePayloadHolders(OnSqlite, SqlPayloadHoldersContract):
    pass


class TestPostgresqlPayloadHolders(OnPostgresql, SqlPayloadHoldersContract):
    pass


class OnRedis(PayloadHoldersContract):
    one = False

    @pytest.fixture
    def client(self, redis_url):
        client = RedisClient(redis_url)
        yield client
        client.close()

    @pytest.fixture
    def store(self, client):
        return RedisIdempotencyStore(client, prefix=f"angzarr-{fresh()}", one=self.one)

    @pytest.fixture
    def holders(self, store):
        return store.holders

    @pytest.fixture
    def age(self, client, holders):
        return lambda span: age_in_redis(client, holders, span)


class TestRedisPayloadHolders(OnRedis):
    def test_nothing_is_left_of_a_body_that_is_forgotten(self, client, holders):
        uri = hold(holders, "a", "me")
        holders.join([PayloadHold(uri, "letter:1")])
        holders.condemn([uri], PayloadState.HELD, timedelta(0))
        holders.forget([uri])
        left = set(client.execute("KEYS", f"{holders.base.replace('{', '?').replace('}', '?')}*"))
        assert left == {f"{holders.base}:bytes"}

    def test_a_key_of_another_program_costs_a_release_and_no_claim(self, store, holders, redis_url):
        uri, key = hold(holders, "a", "me"), claimed(store)
        with redis.Redis.from_url(redis_url) as direct:
            direct.delete(f"{holders.base}:by:{uri}")
            direct.set(f"{holders.base}:by:{uri}", "not a set")
        ending = Complete(result="1", releases=PayloadHold(uri, "me"))
        assert store.settle(key, "mine", ending)
        assert holders.count() == counts(held=(1, 10))

    def test_the_claims_of_a_cluster_release_behind_their_ends(self, store, holders, monkeypatch):
        monkeypatch.setattr(store.outbox, "is_open", lambda: False)
        uris = [hold(holders, name, "me") for name in "abc"]
        ends = [Complete(result="1", releases=PayloadHold(uri, "me")) for uri in uris]
        assert store.ending_args("k", "t", ends[0])[1][-2:] == (0, "1")
        assert store.settle(claimed(store), "mine", ends[0])
        assert not store.settle(claimed(store), "another's", ends[1])
        assert store.settle_all(
            [
                ClaimEnd(claimed(store), "another's", ends[1]),
                ClaimEnd(claimed(store), "mine", ends[2]),
            ]
        ) == [False, True]
        assert holders.count() == counts(held=(1, 10), free=(2, 20))

    def test_a_kill_behind_a_claims_end_in_a_cluster_is_made_good_by_its_next_delivery(
        self, store, holders, monkeypatch
    ):
        """It is a duplicate, and releases by a call of its own; so does the same end once more."""
        monkeypatch.setattr(store.outbox, "is_open", lambda: False)
        uri, key = hold(holders, "a", "me"), claimed(store)
        ending = Complete(result="1", releases=PayloadHold(uri, "me"))

        class Killed(BaseException):
            pass

        def kill(_holds):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(holders, "release", kill)
            with pytest.raises(Killed):
                store.settle(key, "mine", ending)
        assert holders.count() == counts(held=(1, 10))
        [answer] = store.claim([Claim(key=key, token="next", owner="o")])
        assert isinstance(answer, AlreadyCompleted)
        assert store.settle(key, "mine", ending)
        assert holders.count() == counts(free=(1, 10))


class TestRedisPayloadHoldersOfOneServer(OnRedis):
    one = True
