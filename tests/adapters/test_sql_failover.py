"""An address that leads to a PostgreSQL without writes: the old primary, after a failover."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import func, select, text
from tests.contracts.facts import a_fact
from tests.contracts.idempotency import fresh
from tests.contracts.schedule import message
from tools.postgresql_servers import PrivatePostgreSQL
from tools.tcp_proxy import LossyProxy

from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore, SqlOwnerLeases
from angzarr.adapters.sql.delivery.schedule import SqlSchedule
from angzarr.adapters.sql.engine.engine import build_engine, in_transaction, reading
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.errors import LedgerUnavailable, StoreUnavailable
from angzarr.resilience.idempotency import Claim, Claimed
from polling import wait_until

READ_ONLY = text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
SPAN = timedelta(minutes=1)


def a_claim() -> Claim:
    return Claim(key=fresh(), token="t", owner="o")


@pytest.fixture
def engine(postgresql_url):
    """An engine whose only connection has become one to a server that takes no writes."""
    engine = build_engine(postgresql_url, pool_size=1)
    SqlLedger(LedgerDatabase(engine)).get_failure_stats()
    SqlOwnerLeases(engine).renew("o", SPAN)
    SqlFactLog(engine).read()
    with engine.begin() as connection:
        connection.execute(READ_ONLY)
    yield engine
    engine.dispose()


# -- a pooled connection ---------------------------------------------------------------------------


def test_claims_go_on_although_their_connection_takes_no_writes_any_more(engine):
    assert SqlIdempotencyStore(engine).claim([a_claim()]) == [Claimed(starts=1)]


def test_schedule_ledger_and_leases_go_on_although_their_connection_takes_no_writes(engine):
    def spoilt():
        with engine.begin() as connection:
            connection.execute(READ_ONLY)

    SqlSchedule(engine).put(message(), datetime.now(UTC))
    spoilt()
    SqlLedger(LedgerDatabase(engine)).due(limit=1, lease=SPAN)  # whatever others left there
    spoilt()
    SqlOwnerLeases(engine).renew("o", SPAN)


def test_no_fact_is_refused_because_its_connection_takes_no_writes(engine, caplog):
    log, fact = SqlFactLog(engine), a_fact(fresh())
    with caplog.at_level(logging.WARNING, "angzarr.facts"):
        log.append([fact])
        log.close()
    assert caplog.messages == []
    assert fact in log.read(limit=10_000)


@pytest.mark.parametrize(
    ("state", "replaced"),
    [
        *((state, True) for state in ("25006", "57P01", "57P02", "57P03", "08000", "08006")),
        *((state, False) for state in ("53300", "53200", "40001")),
    ],
)
def test_who_is_not_the_one_is_away_and_its_connection_is_not_kept(postgresql_url, state, replaced):
    """As a pooler passes them on, which keeps the connection to its client."""
    engine = build_engine(postgresql_url, pool_size=1)

    def session():
        return in_transaction(engine, lambda c: c.execute(select(func.pg_backend_pid())).scalar())

    before = session()
    with pytest.raises(StoreUnavailable, match="did not serve a transaction"):
        in_transaction(
            engine,
            lambda c: c.exec_driver_sql(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$"),
        )
    assert (session() != before) is replaced
    engine.dispose()


# -- an address ------------------------------------------------------------------------------------


class Address:
    """Leads to the standby; what is to be the primary waits."""

    def __init__(self, proxy: LossyProxy, primary: str, url: str) -> None:
        self._proxy = proxy
        self._primary = urlsplit(primary)
        self.url = url

    def move(self, *, cut: bool) -> None:
        """Lead to the primary; without *cut* who is connected stays with the standby."""
        self._proxy.lead_to(self._primary.hostname, self._primary.port, cut=cut)


@pytest.fixture(scope="module")
def standby(tmp_path_factory, session_name, postgresql_url):
    """The port of a PostgreSQL that was the primary until just now, with all tables."""
    with PrivatePostgreSQL(tmp_path_factory.mktemp("servers") / "postgresql") as server:
        with psycopg.connect(_plain(server.url), autocommit=True) as connection:
            database = sql.Identifier(session_name)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
        for port in (server.port, urlsplit(postgresql_url).port):
            engine = build_engine(_through(postgresql_url, port))
            SqlLedger(LedgerDatabase(engine)).get_failure_stats()
            SqlOwnerLeases(engine).renew("o", SPAN)
            SqlFactLog(engine).read()
            engine.dispose()
        server.stand_by()
        yield server.port


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg", "postgresql")


def _through(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()


@pytest.fixture
def address(standby, postgresql_url):
    with LossyProxy("127.0.0.1", standby) as proxy:
        yield Address(proxy, postgresql_url, _through(postgresql_url, proxy.port))


def test_an_address_that_leads_to_a_standby_is_away_until_it_leads_to_the_primary(address):
    engine = build_engine(address.url)
    store = SqlIdempotencyStore(engine)
    with pytest.raises(StoreUnavailable, match=r"session is read-only.*leads to the primary"):
        store.claim([a_claim()])
    address.move(cut=False)
    assert store.claim([a_claim()]) == [Claimed(starts=1)]
    engine.dispose()


def test_who_stays_connected_to_a_standby_is_given_up_once_the_address_has_moved(address):
    """With an address that says any server will do, so that there is a connection to keep."""
    engine = build_engine(f"{address.url}?target_session_attrs=any", pool_size=1)
    store = SqlIdempotencyStore(engine)
    assert in_transaction(reading(engine), lambda c: c.execute(text("SELECT 1")).scalar()) == 1
    with pytest.raises(StoreUnavailable, match=r"it is a standby.*target_session_attrs=any"):
        store.claim([a_claim()])
    address.move(cut=False)
    assert store.claim([a_claim()]) == [Claimed(starts=1)]
    engine.dispose()


def test_of_two_hosts_the_one_that_takes_writes_is_taken(standby, postgresql_url):
    parts = urlsplit(postgresql_url)
    hosts = f"?host=127.0.0.1:{standby}&host=127.0.0.1:{parts.port}"
    engine = build_engine(f"{parts.scheme}://{parts.username}@{parts.path}{hosts}")
    assert SqlIdempotencyStore(engine).claim([a_claim()]) == [Claimed(starts=1)]
    engine.dispose()


def test_schedule_ledger_and_facts_wait_for_the_primary(address, caplog):
    engine = build_engine(f"{address.url}?target_session_attrs=any")
    log, fact = SqlFactLog(engine), a_fact(fresh())
    with pytest.raises(StoreUnavailable, match="it is a standby"):
        SqlSchedule(engine).put(message(), datetime.now(UTC))
    with pytest.raises(LedgerUnavailable, match="it is a standby"):
        SqlLedger(LedgerDatabase(engine)).due(limit=1, lease=SPAN)
    with caplog.at_level(logging.WARNING, "angzarr.facts"):
        log.append([fact])
        wait_until(lambda: any("facts_delayed" in line for line in caplog.messages))
        address.move(cut=False)
        wait_until(lambda: fact in log.read(limit=10_000))
    SqlSchedule(engine).put(message(), datetime.now(UTC))
    log.close()
    engine.dispose()
    assert not [line for line in caplog.messages if "fact_refused" in line]
