from __future__ import annotations

import json

import pytest
from hypothesis import given
from tests.hostile_letters import header_values

from angzarr.analysis.ledger.export import json_text


@given(header_values)
def test_whatever_a_letter_holds_is_one_json_document(value):
    for text in (json_text(value), json_text({"in": value}, indent=2, is_ascii=False)):
        json.loads(text)
    assert json_text(value).isascii()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("inf"), "inf"),
        ([float("nan")], ["nan"]),
        (1 << 20_000, hex(1 << 20_000)),
        ({b"k": 1, (1, 2): 2}, {"k": 1, "(1, 2)": 2}),
    ],
    ids=["infinity", "nan", "digits", "keys"],
)
def test_what_json_does_not_know_is_its_name(value, told):
    assert json.loads(json_text(value)) == told


def test_what_is_nested_too_deep_is_cut_and_the_rest_told():
    value: object = "bottom"
    for _ in range(100_000):
        value = [value]
    told = json_text({"deep": value, "beside": 1}, indent=2)
    assert '"beside": 1' in told
    assert "[\\u2026]" in told
