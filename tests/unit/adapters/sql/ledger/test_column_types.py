"""A column that is written at once holds what its values would be one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql

from angzarr.adapters.sql.ledger.column_types import LONGEST_NAME, Name, UtcTime, ValidText
from angzarr.analysis.ledger.entry import Status

DIALECT = postgresql.dialect()
zones = st.timezones() | st.integers(-720, 720).map(lambda m: timezone(timedelta(minutes=m)))
texts = st.text(st.characters()) | st.sampled_from(Status) | st.integers()


@pytest.mark.parametrize("kind", [Name(), ValidText()])
@given(values=st.lists(st.none() | texts, max_size=4))
@example(values=["plain", "x" * (LONGEST_NAME + 1), None])
@example(values=["a\x00b", "\udcff", "plain"])
@example(values=[])
def test_a_column_of_texts_is_what_its_values_would_be(kind, values):
    write = kind.bind_processor(DIALECT)
    written = list(kind.write_all(values))
    assert written == [write(value) for value in values]
    assert {type(one) for one in written} <= {str, type(None)}


@given(values=st.lists(st.none() | st.datetimes(timezones=zones), max_size=4))
def test_a_column_of_times_is_in_utc(values):
    written = list(UtcTime().write_all(values))
    assert written == [UtcTime().process_bind_param(value, DIALECT) for value in values]
    assert all(one is None or one.tzinfo is UTC for one in written)


def test_a_time_that_is_utc_stays_as_it_is():
    now = datetime(2026, 5, 4, tzinfo=UTC)
    assert UtcTime().write_all([now])[0] is now
