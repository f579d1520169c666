from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.rebuild.space import digest

ROWS = [(1, "one"), (2, None), (2, None), (3, ""), (4, "3")]


@pytest.fixture(params=["sqlite", "postgresql"])
def connection(request, tmp_path):
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'rows.db'}"
    else:
        url = request.getfixturevalue("postgresql_url")
    engine = build_engine(url, timeout=timedelta(seconds=30))
    with engine.connect() as connection:
        yield connection
        connection.rollback()
    engine.dispose()


@pytest.fixture
def digest_of(connection, unique_name):
    """Return the digest of a table with the rows that are given."""

    def make(rows, columns=("n", "said")):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {unique_name}")
        connection.exec_driver_sql(f"CREATE TABLE {unique_name} (n int, said text)")
        for n, said in rows:
            row = {"n": n, "said": said}
            connection.execute(text(f"INSERT INTO {unique_name} VALUES (:n, :said)"), row)  # noqa: S608
        return digest(connection, unique_name, columns)

    return make


def test_equal_rows_in_another_order_have_the_same_digest(digest_of):
    assert digest_of(ROWS) == digest_of(ROWS[::-1])


@pytest.mark.parametrize(
    "other",
    [
        ROWS[1:],
        [*ROWS, (2, None)],
        [(1, "One"), *ROWS[1:]],
        [(1, "one"), (2, None), (2, ""), (3, ""), (4, "3")],
        [(1, "one"), (2, None), (2, None), (3, "3"), (4, "")],
    ],
    ids=["fewer", "one more of them", "another letter", "empty, not null", "in other rows"],
)
def test_other_rows_have_another_digest(digest_of, other):
    assert digest_of(ROWS) != digest_of(other)


def test_columns_that_are_left_out_do_not_count(digest_of):
    assert digest_of([(1, "a"), (2, "b")], ["said"]) == digest_of([(9, "b"), (8, "a")], ["said"])
    assert digest_of([(1, "a")], []).rows == 1


def test_an_empty_table_has_a_digest(digest_of):
    assert digest_of([]) == (0, 0)
