"""Configurations and pins in SQLite and on a real PostgreSQL; the database refuses changes."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from sqlalchemy import delete, func, inspect, select, text, update
from sqlalchemy.exc import DBAPIError
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.configuration import (
    SHORT,
    ConfigurationStoreContract,
    PinStoreContract,
    draft,
)
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.configuration.store import SqlConfigurationStore
from angzarr.adapters.sql.configuration.tables import (
    configuration_choices,
    configuration_versions,
)
from angzarr.adapters.sql.delivery.pins import _READY, METADATA, SqlPinStore, configuration_pins
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.errors import StoreUnavailable

TABLES = (configuration_versions, configuration_choices)


class SqlConfigurationContract(ConfigurationStoreContract):
    @pytest.fixture
    def store(self, engine):
        return SqlConfigurationStore(engine)

    @pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
    @pytest.mark.parametrize("verb", [delete, lambda table: update(table).values(author="eve")])
    def test_the_database_refuses_to_change_what_was_put(self, store, engine, id, table, verb):
        first = store.put(draft(id)).version
        refused = pytest.raises(DBAPIError, match=f"{table.name} is append-only")
        with refused, engine.begin() as connection:
            connection.execute(verb(table).where(table.c.id == id))
        assert store.get(id, "1") == first
        assert len(store.choices(id)) == 1

    def test_tables_are_made_when_it_is_first_used(self, engine, id):
        store = SqlConfigurationStore(engine, migrate=True)
        store.put(draft(id))
        assert {table.name for table in TABLES} <= set(inspect(engine).get_table_names())


class SqlPinsContract(PinStoreContract):
    @pytest.fixture
    def make_pins(self, engine):
        METADATA.drop_all(engine)  # what another test of this session left in its database
        _READY.discard(engine)
        return partial(SqlPinStore, engine)

    def test_who_reads_no_configuration_has_no_table(self, make_pins, engine, key):
        pins = make_pins()
        assert (pins.read(key), pins.sweep()) == ({}, 0)
        assert configuration_pins.name not in inspect(engine).get_table_names()

    def test_those_that_have_ended_are_swept(self, make_pins, engine, let_pass):
        pins, kept = make_pins(life=SHORT), make_pins()
        for _ in range(5):
            pins.keep(uuid.uuid4().hex, {"pricing": "1", "tax": "1"})
        kept.keep("k", {"pricing": "1"})
        let_pass(SHORT)
        assert [kept.sweep(6), kept.sweep(6), kept.sweep(6)] == [6, 4, 0]
        with engine.begin() as connection:
            assert connection.scalar(select(func.count()).select_from(configuration_pins)) == 1

    def test_a_pin_is_kept_as_long_as_a_run_reads(self, make_pins, key, let_pass):
        make_pins(life=SHORT).keep(key, {"pricing": "1"})
        make_pins().keep(key, {})
        let_pass(SHORT)
        assert make_pins().read(key) == {"pricing": "1"}


class TestSqliteConfiguration(OnSqlite, SqlConfigurationContract):
    pass


class TestPostgresqlConfiguration(OnPostgresql, SqlConfigurationContract):
    def test_the_database_refuses_to_empty_a_table(self, store, engine, id):
        store.put(draft(id))
        refused = pytest.raises(DBAPIError, match="configuration_versions is append-only")
        with refused, engine.begin() as connection:
            connection.execute(text("TRUNCATE configuration_versions"))


class TestSqlitePins(OnSqlite, SqlPinsContract):
    pass


class TestPostgresqlPins(OnPostgresql, SqlPinsContract):
    pass


def test_a_database_that_is_down_is_unavailable():
    engine = build_engine(f"postgresql+psycopg://127.0.0.1:{unused_port()}/none")
    store, pins = SqlConfigurationStore(engine), SqlPinStore(engine)
    for verb in (
        lambda: store.get("a", "1"),
        lambda: store.current("a"),
        lambda: store.put(draft("a")),
        store.ids,
        lambda: pins.keep("k", {"a": "1"}),
        lambda: pins.read("k"),
    ):
        with pytest.raises(StoreUnavailable):
            verb()
    engine.dispose()
