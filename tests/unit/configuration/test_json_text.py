"""Canonical JSON: one text for each value; what people give is bounded."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.configuration.json_text import LARGEST, canonical, read_canonical
from angzarr.errors import ConfigurationUnfit

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def shuffled(value, seed):
    if isinstance(value, dict):
        items = [(name, shuffled(one, seed)) for name, one in value.items()]
        random.Random(seed).shuffle(items)
        return dict(items)
    return [shuffled(one, seed) for one in value] if isinstance(value, list) else value


@given(VALUES, st.integers())
def test_a_value_has_one_text_however_it_is_written(value, seed):
    text = read_canonical(json.dumps(value))
    assert json.loads(text) == value
    assert text.isascii()
    assert read_canonical(json.dumps(shuffled(value, seed), indent=3, ensure_ascii=False)) == text
    assert read_canonical(text) == canonical(value) == text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not JSON in UTF-8: save it as UTF-8"),
        (b"\xef\xbb\xbf{}", "without a byte order mark"),
        ("\N{ZERO WIDTH NO-BREAK SPACE}{}", "without a byte order mark"),
        ("1" * 4_001, "has 4001 digits, 4000 are read: write it as text"),
        ("NaN", "NaN is not a JSON number"),
        ("-Infinity", "not a JSON number"),
        ("1e999", "too large a number"),
        ('{"a": 1, "b": 2, "a": 3}', "has the name 'a' twice"),
        ("[" * 51 + "]" * 51, "too many levels"),
        ("[" + "1," * 200_001 + "1]", "too many values"),
        ('"' + "x" * LARGEST + '"', "are allowed: split it"),
        (b" " * (2 * LARGEST + 1), "are allowed: split it"),
    ],
)
def test_what_is_no_json_or_too_much_is_refused_in_one_sentence(given, told):
    with pytest.raises(ConfigurationUnfit, match="^the value .*" + told) as refused:
        read_canonical(given)
    assert len(str(refused.value)) < 400


def test_what_code_gives_is_checked_too():
    for value in (float("nan"), object(), {1: {2, 3}}):
        with pytest.raises(ConfigurationUnfit, match=r"^the schema is not JSON"):
            canonical(value, "the schema")
