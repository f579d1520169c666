"""One process, one pool: whatever it keeps in the ledger's database shares its connections."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack

import pytest
from sqlalchemy import text
from tools.polling import wait_until

from angzarr import Angzarr
from angzarr.adapters.sql.engine.engine import ENGINES, SharedEngines, build_engine
from angzarr.cli.dashboard import open_services
from angzarr.errors import ConfigurationError
from angzarr.wiring.analysis_worker import open_worker

#: Those of the worker that file letters, what raises alerts, and what tells the log of them.
THREADS = 4
_CONNECTIONS = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")


@pytest.fixture
def name():
    return f"pool-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def app(postgresql_url, name):
    return Angzarr(
        "pool", broker="memory://", store="memory://",
        ledger=f"{postgresql_url}?application_name={name}",
        analysis={"alerts": {"look_every": 1}},
    )  # fmt: skip


@pytest.fixture
def connections(postgresql_url, name):
    """Count the connections of this test's app."""
    engine = build_engine(postgresql_url)

    def count():
        with engine.connect() as connection:
            return connection.scalar(_CONNECTIONS, {"name": name})

    yield count
    engine.dispose()


def test_an_analysis_worker_has_one_pool_for_all_that_it_keeps(app, connections):
    with open_worker(app.ops, ["order"]) as worker:
        for _ in range(3):
            assert not worker.step().away
        assert 1 <= connections() <= THREADS
    wait_until(lambda: connections() == 0)


def test_a_worker_and_a_desk_in_one_process_share_theirs(app, connections):
    with open_worker(app.ops, ["order"]) as worker, ExitStack() as doors:
        desk = open_services(app.ops, doors)
        worker.step()
        assert desk.ledger.get_failure_stats().total >= 0
        desk.jobs.get_jobs()
        assert 1 <= connections() <= THREADS
        doors.close()
        assert not worker.step().away
        assert connections() >= 1
    wait_until(lambda: connections() == 0)


def test_the_last_who_closes_closes_the_pool(tmp_path):
    engines, url = SharedEngines(), f"sqlite:///{tmp_path / 'ledger.db'}"
    one, other = engines.borrow(url), engines.borrow(url)
    pool = one.engine.pool
    assert one.engine is other.engine
    with one.engine.connect():
        pass
    one.close()
    one.close()
    assert pool.checkedin() == 1
    other.close()
    assert pool.checkedin() == 0
    third = engines.borrow(url)
    assert third.engine is not one.engine
    third.close()


def test_a_file_named_from_here_is_another_one_elsewhere(tmp_path, monkeypatch):
    engines = SharedEngines()
    here = engines.borrow("sqlite:///ledger.db")
    monkeypatch.chdir(tmp_path)
    there, whole = (
        engines.borrow("sqlite:///ledger.db"),
        engines.borrow(f"sqlite:///{tmp_path}/ledger.db"),
    )
    assert here.engine is not there.engine
    assert whole.engine is there.engine


def test_an_address_that_is_none_is_refused_and_forgotten():
    with pytest.raises(ConfigurationError):
        ENGINES.borrow("mysql://localhost/x")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12
def test_a_child_lends_even_if_its_parents_other_thread_was_lending(tmp_path):
    engines, url = SharedEngines(), f"sqlite:///{tmp_path / 'ledger.db'}"
    lent = engines.borrow(url)
    with engines._lock:  # what another thread may hold at the fork
        child = os.fork()
        if not child:
            engines.borrow(url).close()
            os._exit(0 if engines.borrow(url).engine is lent.engine else 1)
    wait_until(lambda: os.waitpid(child, os.WNOHANG) == (child, 0))
    lent.close()
