from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    select,
    text,
)
from sqlalchemy.exc import DataError, IntegrityError

from angzarr.adapters.sql.engine.engine import build_engine, in_transaction
from angzarr.adapters.sql.engine.statements import Lookup, insert_rows
from angzarr.adapters.sql.ledger.column_types import (
    Name,
    UtcTime,
    ValidText,
    stored_name,
    valid_text,
)
from angzarr.errors import StoreUnavailable

METADATA = MetaData()
#: One column of each kind that the ledger has; "order" is a word of SQL.
ROWS = Table(
    "bulk_rows",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), unique=True),
    Column("order", Name),
    Column("said", ValidText),
    Column("at", UtcTime),
    Column("body", LargeBinary),
    Column("small", Integer),
    Column("large", BigInteger),
)
VALUES = st.fixed_dictionaries({
    "order": st.none() | st.text(max_size=600),
    "said": st.none() | st.text(),
    "at": st.none() | st.datetimes(
        min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1),  # noqa: DTZ001 - naive here
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
    ),
    "body": st.none() | st.binary(),
    "small": st.none() | st.integers(-(2**31), 2**31 - 1),
    "large": st.none() | st.integers(-(2**63), 2**63 - 1),
})  # fmt: skip


@contextmanager
def tables(url):
    engine = build_engine(url)
    METADATA.create_all(engine)
    yield engine
    METADATA.drop_all(engine)
    engine.dispose()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory):
    with tables(f"sqlite:///{tmp_path_factory.mktemp('bulk') / 'rows.db'}") as engine:
        yield engine


@pytest.fixture(scope="module")
def postgresql(postgresql_url):
    with tables(postgresql_url) as engine:
        yield engine


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engine(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def empty(engine):
    return emptied(engine)


@pytest.fixture
def database(postgresql):
    return emptied(postgresql)


def emptied(engine):
    with engine.begin() as connection:
        connection.execute(delete(ROWS))
    return engine


def stored(engine):
    with engine.connect() as connection:
        found = connection.execute(select(ROWS).order_by(ROWS.c.number))
        return [{name: row[name] for name in VALUES_OF} for row in found.mappings()]


VALUES_OF = ("id", "order", "said", "at", "body", "small", "large")


@given(st.lists(VALUES, max_size=5))
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
def test_rows_are_stored_as_an_insert_stores_them(engine, rows):
    rows = [{"id": f"r{number}", **row} for number, row in enumerate(rows)]
    with engine.begin() as connection:
        connection.execute(delete(ROWS))
        insert_rows(connection, ROWS, rows)
    wanted = [
        row
        | {
            "order": row["order"] and stored_name(row["order"]),
            "said": row["said"] and valid_text(row["said"]),
        }
        for row in rows
    ]
    assert stored(engine) == wanted


def row_of(name, **values):
    return {"id": name, **dict.fromkeys(VALUES_OF[1:]), **values}


def test_a_row_that_is_there_is_an_integrity_error_and_nothing_is_stored(empty):
    def add(connection):
        insert_rows(connection, ROWS, [row_of("a"), row_of("b"), row_of("a")])

    with pytest.raises(IntegrityError):
        in_transaction(empty, add)
    assert stored(empty) == []


def test_no_rows_are_no_statement(empty):
    in_transaction(empty, lambda connection: insert_rows(connection, ROWS, []))
    assert stored(empty) == []


@pytest.mark.parametrize(
    "wrong", [{"small": 2**31}, {"large": -(2**63) - 1}, {"small": "many"}, {"id": "x" * 65}]
)
def test_what_no_column_can_hold_is_the_callers_fault_and_no_outage(database, wrong):
    def add(connection):
        insert_rows(connection, ROWS, [row_of("a"), row_of("b", **wrong)])

    with pytest.raises((DataError, TypeError, OverflowError)):
        in_transaction(database, add)
    assert stored(database) == []
    in_transaction(database, lambda connection: insert_rows(connection, ROWS, [row_of("b")]))
    assert [row["id"] for row in stored(database)] == ["b"]


def end(database, pid):
    with database.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def pid_of(connection):
    return connection.scalar(text("SELECT pg_backend_pid()"))


def test_a_session_that_ends_amid_the_stream_is_tried_once_more(database):
    pids = []

    def add(connection):
        pids.append(pid_of(connection))
        if len(pids) == 1:
            end(database, pids[0])
        insert_rows(connection, ROWS, [row_of(f"r{n}", body=b"x" * 9999) for n in range(500)])

    in_transaction(database, add)
    assert len(set(pids)) == 2
    assert len(stored(database)) == 500


def test_one_that_ends_each_time_is_away(database):
    def add(connection):
        end(database, pid_of(connection))
        insert_rows(connection, ROWS, [row_of("a")])

    with pytest.raises(StoreUnavailable):
        in_transaction(database, add)
    assert stored(database) == []


def named(connection, names):
    lookup = Lookup(select(ROWS.c.order).order_by(ROWS.c.order), ROWS.c.order)
    return [row.order for row in lookup.rows(connection, names)]


ODD_NAMES = ["", "a", "a\x1fb", "b", ",", '{"x"}', "\\", "'", "é", "NULL"]


@given(st.sets(st.sampled_from(ODD_NAMES)), st.lists(st.sampled_from([*ODD_NAMES, "none"])))
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
def test_a_lookup_finds_the_rows_of_the_texts_and_no_others(engine, there, wanted):
    rows = [row_of(f"r{number}", order=name) for number, name in enumerate(sorted(there))]
    with engine.begin() as connection:
        connection.execute(delete(ROWS))
        insert_rows(connection, ROWS, rows)
        assert sorted(named(connection, wanted)) == sorted(there & set(wanted))
