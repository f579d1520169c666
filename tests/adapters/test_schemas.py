"""All schemas: their scripts lead to the tables that are made at once where there are none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from sqlalchemy import func, inspect, select, text
from tests.adapters.revisions import cut_at, indexes

from angzarr.adapters.sql.configuration.tables import CONFIG
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.schema import Schema
from angzarr.adapters.sql.event_store.tables import BOOKS
from angzarr.adapters.sql.facts.tables import FACTS
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.adapters.sql.ordering.tables import ORDERING
from angzarr.maintenance.schema_versions import Revision, SchemaStanding
from angzarr.wiring.ledger import NAMES

SCHEMAS = (LEDGER, BOOKS, ORDERING, FACTS, CONFIG)


def test_all_that_the_command_line_names_are_there():
    assert tuple(schema.name for schema in SCHEMAS) == NAMES


def test_no_table_is_of_two_schemas_and_each_lock_is_its_own():
    tables = [name for schema in SCHEMAS for name in schema.metadata.tables]
    assert len(tables) == len(set(tables))
    assert len({schema.lock for schema in SCHEMAS}) == len(SCHEMAS)
    assert all(schema.lock < 2**63 for schema in SCHEMAS), "PostgreSQL takes no greater one"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda one: one.name)
class SchemaContract:
    @pytest.fixture
    def engine(self, url, schema):
        engine = build_engine(url)
        schema.metadata.drop_all(engine)
        yield engine
        schema.metadata.drop_all(engine)
        engine.dispose()

    def test_its_scripts_lead_to_the_tables_of_this_release(self, engine, schema, monkeypatch):
        with engine.begin() as connection:
            schema.version.create(connection)
        with monkeypatch.context() as patch:
            patch.setattr(Schema, "found", lambda *_: Revision("0000", schema.head))
            schema.upgrade(engine)
        assert schema.revision_of(engine).standing is SchemaStanding.CURRENT
        assert schema.differences(engine) == []
        upgraded = indexes(engine, schema.metadata), columns(engine, schema)
        schema.metadata.drop_all(engine)
        schema.make_ready(engine)
        assert (indexes(engine, schema.metadata), columns(engine, schema)) == upgraded

    def test_each_revision_runs_again_wherever_it_was_cut(self, engine, schema, monkeypatch):
        from_none(engine, schema, monkeypatch)
        for number in range(1, int(schema.head) + 1):
            step = replace(schema, head=f"{number:04}")
            for cut in count(1):
                with cut_at(cut), suppress(OSError):
                    step.upgrade(engine)
                if schema.revision_of(engine).found == step.head:
                    break
        assert schema.differences(engine) == []
        upgraded = indexes(engine, schema.metadata), columns(engine, schema)
        monkeypatch.undo()
        schema.metadata.drop_all(engine)
        schema.make_ready(engine)
        assert (indexes(engine, schema.metadata), columns(engine, schema)) == upgraded

    def test_a_process_that_may_end_soon_makes_tables_and_upgrades_none(
        self, engine, schema, monkeypatch
    ):
        with monkeypatch.context() as patch:
            from_none(engine, schema, patch)
            told = f"which only workers upgrade: run `{schema.cure}`"
            with pytest.raises(schema.away, match=told):
                schema.make_ready(engine, upgrade=False)
        schema.metadata.drop_all(engine)
        schema.make_ready(engine, upgrade=False)
        assert schema.revision_of(engine).standing is SchemaStanding.CURRENT

    def test_tables_without_a_revision_are_those_of_the_first(self, engine, schema):
        for table in schema.first:
            table.create(engine)
            assert schema.revision_of(engine).found == "0001"
            table.drop(engine)
        assert schema.revision_of(engine).standing is SchemaStanding.MISSING

    def test_it_is_left_alone_where_a_setting_says_so(self, engine, schema):
        with pytest.raises(schema.away, match=f"{schema.setting} is off: run `{schema.cure}`"):
            schema.make_ready(engine, migrate=False)
        assert schema.revision_of(engine).standing is SchemaStanding.MISSING


def from_none(engine, schema, monkeypatch):
    """Let the tables count as of a revision before the first until a script says another."""

    def found(self, connection):
        revision = connection.scalar(select(func.max(self.version.c.version_num)))
        return Revision(revision or "0000", self.head)

    with engine.begin() as connection:
        schema.version.create(connection)
    monkeypatch.setattr(Schema, "found", found)


def columns(engine, schema):
    """Return what the database says of each column, whatever their order."""
    found = inspect(engine)
    return {
        (table, column["name"]): (repr(column["type"]), column["nullable"])
        for table in schema.metadata.tables
        for column in found.get_columns(table)
    }


class TestSqliteSchemas(SchemaContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'all.db'}"


class TestPostgresqlSchemas(SchemaContract):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url


BACKEND = text(
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE query LIKE :begins AND state = 'active' AND pid <> pg_backend_pid()"
)


def test_an_upgrade_whose_connection_is_cut_while_an_index_is_built_is_made_up_for(
    postgresql_url, monkeypatch
):
    engine = build_engine(postgresql_url)
    FACTS.metadata.drop_all(engine)
    with monkeypatch.context() as patch:
        from_none(engine, FACTS, patch)
        replace(FACTS, head="0002").upgrade(engine)
        with ThreadPoolExecutor(1) as pool, engine.connect() as reader, engine.connect() as killer:
            reader.execution_options(isolation_level="REPEATABLE READ")
            reader.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            reader.execute(text("SELECT 1"))  # the build waits for what this transaction may see
            upgrading = pool.submit(FACTS.upgrade, engine)
            begins = {"begins": "CREATE INDEX CONCURRENTLY ix_facts_by_asset%"}
            while not killer.scalar(BACKEND, begins):
                killer.rollback()
                assert not upgrading.done(), upgrading.result()
            with pytest.raises(FACTS.away):
                upgrading.result()
    assert FACTS.revision_of(engine).found == "0002"
    assert "by" in {name for _, name in columns(engine, FACTS)}
    assert FACTS.upgrade(engine).found == "0002"
    assert FACTS.differences(engine) == []
    assert FACTS.revision_of(engine).standing is SchemaStanding.CURRENT
    FACTS.metadata.drop_all(engine)
    engine.dispose()
