from __future__ import annotations

import pytest
from sqlalchemy import bindparam, event, func, literal, select

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.statements import Single
from angzarr.errors import StoreUnavailable

DOUBLE = select((bindparam("n", type_=literal(1).type) * literal(2)).label("twice"))


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'one.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    engine = build_engine(url, pool_size=1)
    yield engine
    engine.dispose()


@pytest.fixture
def said(engine):
    """All questions that are asked by SQLAlchemy."""
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def before(_connection, _cursor, statement, *_):
        if statement.startswith("SELECT"):
            statements.append(statement)

    return statements


def test_the_first_row_is_returned_and_none_where_there_is_no_row(engine):
    assert tuple(Single(engine, DOUBLE, reads=True).first({"n": 21})) == (42,)
    nothing = Single(engine, DOUBLE.where(bindparam("n") < 0))
    assert nothing.first({"n": 21}) is None


def test_the_same_is_returned_within_a_transaction(engine):
    with engine.begin() as connection:
        assert tuple(Single(engine, DOUBLE).first_in(connection, {"n": 21})) == (42,)


def test_postgresqls_driver_gets_it_as_it_is(engine, said):
    single = Single(engine, DOUBLE)
    single.first({"n": 1})
    with engine.begin() as connection:
        single.first_in(connection, {"n": 1})
    assert len(said) == (0 if engine.dialect.name == "postgresql" else 2)


def test_its_connection_begins_transactions_again_when_it_is_given_back(postgresql_url):
    engine = build_engine(postgresql_url, pool_size=1)
    single = Single(engine, select(func.pg_backend_pid(), func.pg_current_xact_id_if_assigned()))
    backend, _ = single.first({})
    with engine.connect() as connection:
        first = connection.scalar(select(func.pg_current_xact_id()))
        assert connection.scalar(select(func.pg_current_xact_id())) == first
        assert connection.scalar(select(func.pg_backend_pid())) == backend
    engine.dispose()


def test_a_pooled_connection_that_was_closed_meanwhile_is_replaced(postgresql_url):
    engine, other = build_engine(postgresql_url), build_engine(postgresql_url)
    single = Single(engine, select(func.pg_backend_pid()))
    (backend,) = single.first({})
    with other.begin() as connection:
        connection.execute(select(func.pg_terminate_backend(backend, 5000)))
    (another,) = single.first({})
    assert another != backend
    for one in (engine, other):
        one.dispose()


def test_what_the_database_refuses_is_told_as_ever(postgresql_url):
    engine = build_engine(postgresql_url)
    single = Single(engine, select(func.no_such_function()))
    with pytest.raises(StoreUnavailable, match="no_such_function"):
        single.first({})
    with engine.begin() as connection, pytest.raises(Exception, match="no_such_function"):
        single.first_in(connection, {})
    engine.dispose()
