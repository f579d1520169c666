"""The fleet in SQLite and on a real PostgreSQL."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import delete, insert, inspect
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.fleet import LONG, FleetContract, member

from angzarr.adapters.sql.delivery.claim_tables import create_tables, owner_leases
from angzarr.adapters.sql.delivery.fleet import METADATA, SqlFleet, fleet_members
from angzarr.adapters.sql.delivery.idempotency import SqlOwnerLeases
from hand_clock import START


class SqlFleetContract(FleetContract):
    @pytest.fixture
    def leases(self, engine):
        METADATA.drop_all(engine)  # what another test of this session left in its database
        create_tables(engine)
        with engine.begin() as connection:
            connection.execute(delete(owner_leases))
        return SqlOwnerLeases(engine)

    @pytest.fixture
    def make_fleet(self, engine, leases):
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


class TestSqliteFleet(OnSqlite, SqlFleetContract):
    pass


class TestPostgresqlFleet(OnPostgresql, SqlFleetContract):
    pass
