"""The two databases on which the suites of stores in SQL run, and what is done to them."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import delete

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import LEDGER
from tcp_proxy import LossyProxy

#: A loaded machine lets many threads wait long for one SQLite file.
PATIENT = timedelta(minutes=5)


class OnSql:
    """Gives an `engine` for the `url`; no test of a suite cuts the power, so nothing is synced."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT, power_safe=False)
        yield engine
        engine.dispose()

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def database(self, engine):
        """A ledger without entries."""
        return LedgerDatabase(emptied(engine))


class OnSqlite(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'angzarr.db'}"


class OnPostgresql(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url


def emptied(engine):
    """Return *engine*, with the tables of a ledger that has nothing in it."""
    LEDGER.make_ready(engine)
    with engine.begin() as connection:
        for table in reversed(LEDGER.metadata.sorted_tables):
            if table is not LEDGER.version:
                connection.execute(delete(table))
    return engine


@contextmanager
def bad_line(url):
    """Lend an engine for *url*, and the line that it goes over."""
    place = urlsplit(url)
    with LossyProxy(place.hostname, place.port) as proxy:
        through = re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", url)
        engine = build_engine(through, timeout=timedelta(seconds=2))
        yield engine, proxy
        engine.dispose()
