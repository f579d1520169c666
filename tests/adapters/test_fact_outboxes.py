"""The outbox of facts in each claim store, on its real server."""

from __future__ import annotations

import pytest
import redis
from redis.exceptions import ResponseError
from sqlalchemy import event
from tests.adapters.sql_sides import PATIENT, OnPostgresql, OnSql, OnSqlite
from tests.contracts.fact_outbox import FactOutboxContract, claimed, texts
from tests.contracts.idempotency import fresh

from angzarr.adapters.memory.facts import MemoryFactOutbox
from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.adapters.redis.fact_outbox import RedisFactOutbox
from angzarr.adapters.redis.idempotency import RedisIdempotencyStore
from angzarr.adapters.redis.link import RedisClient
from angzarr.adapters.sql.delivery.claim_tables import create_tables, fact_outbox
from angzarr.adapters.sql.delivery.fact_outbox import SqlFactOutbox
from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import Complete


class TestMemoryFactOutbox(FactOutboxContract):
    @pytest.fixture
    def make_outbox(self):
        return lambda most: MemoryFactOutbox(most=most)

    @pytest.fixture
    def make_claims(self):
        return lambda outbox: CompletedCache(
            MemoryIdempotencyStore(MemoryOwnerLeases(), outbox=outbox)
        )


class SqlFactOutboxContract(OnSql, FactOutboxContract):
    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT, power_safe=False)
        create_tables(engine)
        yield engine
        with engine.begin() as connection:
            connection.execute(fact_outbox.delete())
        engine.dispose()

    @pytest.fixture
    def make_outbox(self, engine):
        return lambda most: SqlFactOutbox(engine, most=most)

    @pytest.fixture
    def make_claims(self, engine):
        return lambda outbox: SqlIdempotencyStore(engine, outbox=outbox)


class TestSqliteFactOutbox(OnSqlite, SqlFactOutboxContract):
    pass


class TestPostgresqlFactOutbox(OnPostgresql, SqlFactOutboxContract):
    def test_facts_cost_no_statement_of_their_own(self, store, engine):
        key, said = claimed(store), []
        event.listen(engine, "before_cursor_execute", lambda *told: said.append(told[2]))
        assert store.owns(key, "mine")
        assert store.owns(key, "mine", ["a", "b"])
        assert store.settle(key, "mine", Complete(), ["c"])
        asked, asked_with_facts, *_ending = said
        assert "fact_outbox" in asked_with_facts
        assert "fact_outbox" not in asked
        assert len(said) == 4, "an ending reads and writes"


class OnRedis(FactOutboxContract):
    @pytest.fixture
    def client(self, redis_url):
        client = RedisClient(redis_url)
        yield client
        client.close()

    @pytest.fixture
    def prefix(self):
        return f"angzarr-{fresh()}"

    @pytest.fixture
    def make_outbox(self, client, prefix):
        return lambda most: RedisFactOutbox(client, prefix=prefix, most=most)

    @pytest.fixture
    def make_claims(self, client, prefix):
        return lambda outbox: RedisIdempotencyStore(client, prefix=prefix, outbox=outbox)


class TestRedisFactOutbox(OnRedis):
    def test_a_server_that_is_no_cluster_has_one(self, outbox):
        assert outbox.is_open()

    def test_a_node_of_a_cluster_has_none_and_an_absent_server_is_asked_again(self):
        answers = [StoreUnavailable("away"), "# Cluster\r\ncluster_enabled:1\r\n"]

        class Client:
            def execute(self, *command):
                assert command == ("INFO", "cluster")
                answer = answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer

        outbox = RedisFactOutbox(Client(), prefix="p")
        assert outbox.is_open(), "then the claim fails too, and is tried again"
        assert not outbox.is_open()
        assert not outbox.is_open(), "it is asked once"

    def test_a_user_without_the_right_to_streams_loses_facts_and_no_claim(
        self, redis_url, client, prefix
    ):
        with redis.Redis.from_url(redis_url) as direct:
            direct.acl_setuser(
                prefix,
                enabled=True,
                passwords=["+secret"],
                keys=["*"],
                categories=["+@all", "-@stream"],
            )
            bare = redis_url.rpartition("@")[2].rpartition("//")[2]
            limited = RedisClient(f"redis://{prefix}:secret@{bare}")
            try:
                store = RedisIdempotencyStore(limited, prefix=prefix)
                assert store.settle(claimed(store), "mine", Complete(), ["a"])
                with pytest.raises(StoreUnavailable):
                    store.outbox.read(1)
            finally:
                limited.close()
                direct.acl_deluser(prefix)

    def test_a_key_of_another_program_costs_facts_and_no_claim(
        self, outbox, store, redis_url, prefix
    ):
        with redis.Redis.from_url(redis_url) as direct:
            direct.set(f"{prefix}:facts", "not a stream")
        assert store.settle(claimed(store), "mine", Complete(), ["a", "b"])
        assert store.owns(claimed(store), "mine", ["c"])
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            outbox.trim()
        with redis.Redis.from_url(redis_url) as direct:
            direct.delete(f"{prefix}:facts")
        assert outbox.trim() == (0, 3)

    def test_a_full_server_keeps_the_facts_at_a_later_try(self, private_redis):
        full = RedisClient(private_redis.url)
        store = RedisIdempotencyStore(full)
        key, settings = claimed(store), private_redis.client()
        settings.config_set("maxmemory-policy", "noeviction")
        settings.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable, match="used memory"):
            store.owns(key, "mine", ["a"])
        settings.config_set("maxmemory", 0)
        assert store.owns(key, "mine", ["a"])
        assert texts(store.outbox) == ["a"]
        assert store.outbox.trim() == (1, 0), "none was dropped"
        full.close()

    def test_an_entry_of_another_program_is_read_as_no_fact(self, outbox, redis_url, prefix):
        with redis.Redis.from_url(redis_url) as direct:
            direct.xadd(f"{prefix}:facts", {"other": "x"})
        outbox.put(["a"])
        assert texts(outbox) == ["", "a"]


class TestRedisFactOutboxOfOneServer(OnRedis):
    @pytest.fixture
    def make_claims(self, client, prefix):
        return lambda outbox: RedisIdempotencyStore(client, prefix=prefix, one=True, outbox=outbox)
