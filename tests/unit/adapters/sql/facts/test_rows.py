from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.facts import AT, a_fact

from angzarr.adapters.sql.engine.statements import utc
from angzarr.adapters.sql.facts.rows import MAX_TEXT, fact_of, key_of, row_of

TEXTS = st.text(st.characters(codec=None))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary()
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(TEXTS, DATA, max_size=3))
def test_any_data_becomes_strict_json_that_every_database_takes(data):
    written = json.dumps(row_of(a_fact(data=data))["data"], allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in written
    written.encode()  # raises for a lone surrogate


@given(TEXTS, TEXTS)
def test_any_text_fits_its_column(id, tool):
    row = row_of(a_fact(id, tool_id=tool))
    for value in (row["id"], row["tool_id"]):
        assert len(value) <= MAX_TEXT
        assert "\x00" not in value
        value.encode()  # raises for a lone surrogate


def test_long_ids_stay_different():
    assert key_of("x" * 501) != key_of("x" * 502)
    assert key_of("x" * 500) == "x" * 500


def test_a_plain_fact_survives_its_row():
    fact = a_fact(tenant_id="t", data={"a": [1, None, {"b": 2.5}]})
    assert fact_of(row_of(fact)) == fact


def test_naive_times_count_as_utc():
    assert utc(AT.replace(tzinfo=None)) == AT
    assert utc(datetime(2026, 1, 1, tzinfo=UTC)).utcoffset() == timedelta(0)
