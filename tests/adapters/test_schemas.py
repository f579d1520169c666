"""All schemas: their scripts lead to the tables that are made at once where there are none."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect
from tests.adapters.revisions import indexes

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
