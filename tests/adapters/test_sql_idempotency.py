from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, inspect, select, text
from tests.adapters.sql_sides import PATIENT, OnPostgresql, OnSql, OnSqlite, bad_line
from tests.contracts.idempotency import (
    LONG,
    SHORT,
    IdempotencyContract,
    claim_at_once,
    fresh,
)
from tests.contracts.idempotency_model import compare_with_memory

from angzarr.adapters.sql.delivery.claim_tables import create_tables, idempotency_keys, owner_leases
from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore, SqlOwnerLeases
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.resilience.idempotency import Claim, Claimed, Complete, Fail, InProgress

QUICK = timedelta(milliseconds=500)


def ready(url, **options):
    engine = build_engine(url, timeout=PATIENT, **options)
    create_tables(engine)
    return engine


class SqlStoreContract(OnSql, IdempotencyContract):
    @pytest.fixture
    def engine(self, url):
        engine = ready(url, power_safe=False)
        yield engine
        engine.dispose()

    @pytest.fixture
    def leases(self, engine):
        return SqlOwnerLeases(engine)

    @pytest.fixture
    def make_store(self, engine):
        return lambda life: SqlIdempotencyStore(engine, life=life)

    def test_random_histories_match_the_memory_store(self, store, leases):
        compare_with_memory(store, leases, outbox=store.outbox, histories=25, steps=20)

    def test_claims_of_four_processes_have_one_winner(self, store, key, living, engine):
        store.claim([Claim(key=fresh(), token="parent", owner=living)])
        assert sum(wins_of_processes(store, key, living)) == 1
        assert store.claim([Claim(key=key, token="late", owner=living)]) == [InProgress()]

    def test_tables_are_created_by_many_processes_at_once(self, url, engine):
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE idempotency_keys"))
        in_processes(lambda: create_tables(build_engine(url, timeout=PATIENT)))
        indexes = inspect(engine).get_indexes("idempotency_keys")
        assert ["expires_at"] in [index["column_names"] for index in indexes]

    def test_sweep_deletes_what_expired_and_no_more_than_its_limit(
        self, make_store, leases, engine, let_pass
    ):
        store, mine = make_store(SHORT), fresh()
        leases.renew(f"{mine}-short", SHORT)
        leases.renew(f"{mine}-long", LONG)
        store.claim([Claim(key=f"{mine}-{n}", token="t", owner="o") for n in range(4)])
        store.settle(f"{mine}-3", "t", Complete(life=LONG))
        let_pass(SHORT)
        assert store.sweep(limit=2) == 2
        while store.sweep(limit=2):
            pass
        while leases.sweep():
            pass
        with engine.connect() as connection:
            assert rows(connection, idempotency_keys.c.key, mine) == [f"{mine}-3"]
            assert rows(connection, owner_leases.c.owner, mine) == [f"{mine}-long"]

    def test_row_tells_when_it_was_created_and_when_it_ends(self, store, engine, key):
        store.claim([Claim(key=key, token="t", owner="o")])
        store.settle(key, "t", Fail(error='{"type": "ValueError"}'))
        with engine.connect() as connection:
            row = connection.execute(
                select(idempotency_keys).where(idempotency_keys.c.key == key)
            ).one()
        assert row.status == "failed"
        assert row.result == '{"type": "ValueError"}'
        life = row.expires_at - row.created_at
        assert timedelta(hours=24) <= life < timedelta(hours=25)

    def test_recycled_row_starts_anew(self, make_store, engine, key, let_pass):
        store = make_store(SHORT)
        claim = Claim(key=key, token="t", owner="o")
        store.claim([claim])
        with engine.connect() as connection:
            first = connection.execute(created_at_of(key)).scalar_one()
        let_pass(SHORT)
        assert store.claim([claim]) == [Claimed(starts=1)]
        with engine.connect() as connection:
            assert connection.execute(created_at_of(key)).scalar_one() >= first + SHORT


def created_at_of(key):
    return select(idempotency_keys.c.created_at).where(idempotency_keys.c.key == key)


def rows(connection, column, start):
    return list(connection.execute(select(column).where(column.startswith(start))).scalars())


def in_processes(run, processes=4):
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=run) for _ in range(processes)]
    for process in children:
        process.start()
    for process in children:
        process.join(90)
    assert [process.exitcode for process in children] == [0] * processes


def wins_of_processes(store, key, owner, threads=50):
    """Return how many claims each forked process won; the engine is used across the fork."""
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def contend():
        granted = claim_at_once(store, key, owner, threads)
        answers.put(sum(isinstance(answer, Claimed) for answer in granted))

    in_processes(contend)
    return [answers.get() for _ in range(4)]


def linked(fd):
    """Return what an open descriptor refers to; the one that lists the folder is gone again."""
    return str(fd.readlink()) if fd.is_symlink() else ""


class TestSqliteStore(SqlStoreContract, OnSqlite):
    def test_file_is_in_wal_mode_with_the_asked_for_safety(self, url, engine):
        safe = ready(url)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        with safe.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        safe.dispose()

    def test_fork_inherits_no_open_file_while_threads_are_at_work(self, url, store, living):
        stop = threading.Event()

        def work():
            done = 0
            while not stop.is_set():
                done += len(store.claim([Claim(key=fresh(), token="t", owner=living)]))
            return done

        def child():
            files = [link for fd in Path("/proc/self/fd").iterdir() if (link := linked(fd))]
            assert [name for name in files if "angzarr.db" in name] == []
            assert store.claim([Claim(key=fresh(), token="t", owner=living)]) == [Claimed()]

        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(work) for _ in range(4)]
            try:
                for _ in range(5):
                    in_processes(child)
            finally:
                stop.set()
        assert all(worker.result() for worker in workers)

    def test_locked_file_is_unavailable_after_the_timeout(self, url, engine):
        store = SqlIdempotencyStore(build_engine(url, timeout=QUICK))
        with engine.begin(), pytest.raises(StoreUnavailable, match="locked"):
            store.claim([Claim(key="k", token="t", owner="o")])
        assert store.claim([Claim(key="k", token="t", owner="o")]) == [Claimed(starts=1)]


class TestPostgresqlStore(SqlStoreContract, OnPostgresql):
    def test_lease_is_measured_by_the_database(self, leases, engine):
        owner = fresh()
        leases.renew(owner, LONG)
        until = owner_leases.c.expires_at
        with engine.connect() as connection:
            ahead = connection.execute(
                select(until - func.clock_timestamp()).where(owner_leases.c.owner == owner)
            ).scalar_one()
        assert LONG - timedelta(seconds=5) < ahead <= LONG


# -- faults of PostgreSQL --------------------------------------------------------------------------


@pytest.fixture
def proxy_and_store(postgresql_url):
    ready(postgresql_url).dispose()
    with bad_line(postgresql_url) as (engine, proxy):
        yield proxy, SqlIdempotencyStore(engine)


@pytest.fixture
def proxy(proxy_and_store):
    return proxy_and_store[0]


@pytest.fixture
def through_proxy(proxy_and_store):
    return proxy_and_store[1]


def test_a_postgresql_that_takes_connections_and_never_answers_is_away(through_proxy, proxy):
    claim = Claim(key=fresh(), token="t", owner="o")
    assert through_proxy.claim([claim]) == [Claimed(starts=1)]
    proxy.stall()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        through_proxy.claim([claim])
    assert time.monotonic() - began < 60, "a statement and a connect may take 2 s each"
    proxy.mend()
    assert through_proxy.claim([claim]) == [Claimed(starts=1)]


def test_lost_commit_is_repeated_and_counts_no_start(through_proxy, proxy):
    through_proxy.claim([Claim(key=fresh(), token="t", owner="o")])
    claim = Claim(key=fresh(), token="t", owner="o")
    proxy.lose_replies(b"COMMIT")
    assert through_proxy.claim([claim]) == [Claimed(starts=1)]
    proxy.lose_replies(b"COMMIT")
    assert through_proxy.settle(claim.key, "t", Complete())


def test_replies_that_stay_lost_are_unavailable_and_the_claim_can_be_sent_again(
    through_proxy, proxy
):
    through_proxy.claim([Claim(key=fresh(), token="t", owner="o")])
    claim = Claim(key=fresh(), token="t", owner="o")
    proxy.lose_replies(b"COMMIT", times=100)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        through_proxy.claim([claim])
    assert time.monotonic() - started < 60
    proxy.lose_replies(b"", times=0)
    assert through_proxy.claim([claim]) == [Claimed(starts=1)]


def test_session_that_the_server_ended_is_replaced(postgresql_url):
    engine = ready(postgresql_url, pool_size=1)
    store, claim = SqlIdempotencyStore(engine), Claim(key=fresh(), token="t", owner="o")
    store.claim([claim])
    with engine.connect() as connection:
        session = connection.execute(select(func.pg_backend_pid())).scalar_one()
    other = build_engine(postgresql_url)
    with other.begin() as connection:
        connection.execute(select(func.pg_terminate_backend(session)))
    other.dispose()
    assert store.claim([claim]) == [Claimed(starts=1)]
    engine.dispose()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://u:s3cret@h/d", "nonsense"]
)
def test_address_that_cannot_work_is_refused(url):
    with pytest.raises(ConfigurationError) as caught:
        build_engine(url)
    assert "s3cret" not in str(caught.value)
