from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.facts.fact import Cost, Fact
from angzarr.facts.fact_text import MAX_LINE, fact_from_text, fact_text

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=30)
optional = st.none() | texts
zones = st.sampled_from([UTC, timezone(timedelta(hours=-11, minutes=-30))])
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
costs = st.builds(
    Cost,
    amount=st.decimals(min_value=0, allow_nan=False, allow_infinity=False, places=6),
    currency=st.just("EUR"),
    from_entity=optional,
    to_entity=optional,
)
NAMES = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "config_id",
    "config_version", "resolves",
)  # fmt: skip
facts = st.builds(
    Fact,
    id=texts.filter(bool),
    type=texts,
    subtype=texts,
    at=st.datetimes(timezones=zones),
    **dict.fromkeys(NAMES, optional),
    cost=st.none() | costs,
    data=st.dictionaries(texts, plain_values, max_size=4),
)  # fmt: skip


def a_fact(**changes) -> Fact:
    return Fact(**({"id": "f", "type": "error", "subtype": "external", "at": AT} | changes))


@given(facts)
def test_a_fact_comes_back_from_its_line_as_it_was(fact):
    line = fact_text(fact)
    assert fact_from_text(line) == fact
    assert "\n" not in line
    assert line.isascii()


@given(
    st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | plain_values.map(json.dumps)
)
def test_what_is_no_fact_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError):
        fact_from_text(text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id": ""}, "id of a fact is a text, not ''"),
        ({"id": 7}, "id of a fact is a text, not 7"),
        ({"tenant_id": ["x"]}, "tenant_id of a fact is a text"),
        ({"at": "2026-05-04T03:02:01"}, "at of a fact is a time with its zone"),
        ({"at": "yesterday"}, "at of a fact is a time with its zone, not 'yesterday'"),
        ({"data": []}, "data of a fact is a JSON object"),
        ({"cost": 7}, "cost of a fact is a JSON object"),
        ({"cost": {"amount": "NaN", "currency": "EUR"}}, "amount of a cost is a decimal number"),
        ({"cost": {"amount": "1E+999999999", "currency": "EUR"}}, "is a decimal number"),
        ({"cost": {"amount": "x", "currency": "EUR"}}, "not 'x'"),
        ({"cost": {"amount": "-1", "currency": "EUR"}}, "a decimal number from 0 on, not '-1'"),
        ({"cost": {"amount": "1"}}, "currency of a fact is a text"),
    ],
)
def test_a_hostile_line_is_refused_by_what_is_wrong_with_it(changes, says):
    line = json.dumps(json.loads(fact_text(a_fact())) | changes)
    with pytest.raises(ValueError, match=says):
        fact_from_text(line)


def test_lines_that_are_too_long_or_too_deep_are_refused_unparsed():
    with pytest.raises(ValueError, match="longer than"):
        fact_from_text("[" * (MAX_LINE + 1))
    with pytest.raises(ValueError, match="too many levels"):
        fact_from_text('{"data":' + "[" * 1000)


def test_odd_data_becomes_what_json_knows():
    itself: dict = {}
    itself["itself"] = itself
    data = {
        "money": Decimal("9.90"), "nan": float("nan"), "at": AT, "set": {1}, 7: b"\xff",
        "surrogate": "\ud800", "nul": "a\x00", "itself": itself,
    }  # fmt: skip
    read = fact_from_text(fact_text(a_fact(data=data))).data
    assert read["money"] == "9.90"
    assert read["nan"] == "nan"
    assert read["set"] == [1]
    assert read["7"] == "b'\\xff'"
    assert read["surrogate"] == "?"
    assert read["nul"] == "a\N{REPLACEMENT CHARACTER}"


def test_data_without_end_is_left_out_and_its_length_told():
    read = fact_from_text(fact_text(a_fact(data={"x": "y" * MAX_LINE})))
    assert read.data == {"left_out_characters": pytest.approx(MAX_LINE, abs=200)}


def test_a_hostile_currency_stays_a_text_and_nan_in_data_too():
    line = fact_text(a_fact())[:-3] + '{"x":NaN}}'
    assert fact_from_text(line).data == {"x": "NaN"}
