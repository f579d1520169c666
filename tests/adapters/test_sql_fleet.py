"""The fleet in SQLite and on a real PostgreSQL."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import delete, insert, inspect
from tests.contracts.fleet import LONG, FleetContract, member
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.delivery.fleet import METADATA, SqlFleet, fleet_members
from angzarr.adapters.sql.delivery.idempotency import SqlOwnerLeases, create_tables, owner_leases
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.errors import StoreUnavailable
from hand_clock import START

#: Many threads wait for one SQLite file on a busy machine.
PATIENT = timedelta(seconds=30)


class OnSql(FleetContract):
    """Subclasses give `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        METADATA.drop_all(engine)  # what another test of this session left in its database
        create_tables(engine)
        with engine.begin() as connection:
            connection.execute(delete(owner_leases))
        yield engine
        engine.dispose()

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def leases(self, engine):
        return SqlOwnerLeases(engine)

    @pytest.fixture
    def make_fleet(self, engine):
        return partial(SqlFleet, engine)

    @pytest.mark.parametrize("said", ["{", "[]", '{"owner": "b"}', "null"])
    def test_what_others_wrote_there_hides_nobody(self, enter, fleet, leases, engine, said):
        enter(member("a"))
        leases.renew("b", LONG)
        with engine.begin() as connection:
            connection.execute(insert(fleet_members).values(owner="b", said=said, said_at=START))
        assert list(fleet.members()) == [member("a")]

    def test_claims_need_none_of_its_tables(self, leases, engine):
        leases.renew("a", LONG)
        assert [name for name in inspect(engine).get_table_names() if "fleet" in name] == []


class TestSqliteFleet(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'angzarr.db'}"


class TestPostgresqlFleet(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url


def test_tables_come_with_the_first_look(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'angzarr.db'}")
    assert list(SqlFleet(engine).members()) == []
    assert {"fleet_members", "fleet_releases"} <= set(inspect(engine).get_table_names())
    engine.dispose()


def test_a_server_that_is_down_is_unavailable():
    fleet = SqlFleet(build_engine(f"postgresql://user:s3cret@127.0.0.1:{unused_port()}/angzarr"))
    for verb in (lambda: fleet.register(member("a")), fleet.members, fleet.releases):
        with pytest.raises(StoreUnavailable) as caught:
            verb()
        assert "s3cret" not in str(caught.value)
