from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.facts import AT, a_fact

from angzarr.facts.query import FactCursor, FactQuery, fact_page_of, of_last_day, read_fact_cursor

MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(MOMENTS, st.integers(0, 2**59))
def test_a_cursor_is_read_as_it_was_written(at, position):
    cursor = FactCursor(at, position)
    assert read_fact_cursor(str(cursor)) == cursor


@given(st.text())
def test_what_is_no_cursor_is_a_value_error(text):
    with suppress(ValueError):
        cursor = read_fact_cursor(text)
        assert cursor.at.tzinfo is UTC
        assert 0 <= cursor.position < 10**18


@given(st.integers(1, 5), st.integers(0, 8))
def test_a_page_says_whether_another_one_follows(limit, there):
    rows = [(FactCursor(AT, number), a_fact(f"f{number}")) for number in range(there)]
    page = fact_page_of(rows[: limit + 1], limit)
    assert len(page.facts) == min(limit, there)
    assert page.more == (there > limit)
    assert bool(page.next) == page.more


def test_counts_are_of_the_last_day_unless_few_facts_are_meant():
    now, day = datetime(2026, 11, 29, 12, tzinfo=UTC), timedelta(days=1)
    assert of_last_day(FactQuery(), now).since == now - day
    assert of_last_day(FactQuery(tenant_id="t", until=AT), now).since == AT - day
    for wanted in (
        FactQuery(since=AT), FactQuery(event_id="e"), FactQuery(trace_id="t"),
        FactQuery(entity_id="r"),
    ):  # fmt: skip
        assert of_last_day(wanted, now) == wanted


@given(st.one_of(st.none(), MOMENTS))
def test_no_end_is_too_early(until):
    assert of_last_day(FactQuery(until=until), AT).since is not None
