from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

MANY = 10**9
TEXTS = st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from('[]{},:"\\'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def nodes(value: Any) -> int:
    """Count values and keys."""
    if isinstance(value, dict):
        return 1 + sum(1 + nodes(one) for one in value.values())
    return 1 + sum(map(nodes, value)) if isinstance(value, list) else 1


def levels(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


def containers(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(containers, value.values()))
    return 1 + sum(map(containers, value)) if isinstance(value, list) else 0


@given(VALUES, st.booleans(), st.booleans())
def test_no_value_is_missed_and_strings_are_none(value, as_text, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    given_text = text if as_text else text.encode()
    assert check_json(given_text, Bounds(MANY, MANY)) >= nodes(value)
    enough = Bounds(nodes(value) + containers(value), levels(value))
    assert check_json(given_text, enough) >= nodes(value)
    if levels(value):
        with pytest.raises(TooMuch, match="levels"):
            check_json(given_text, Bounds(MANY, levels(value) - 1))
    with pytest.raises(TooMuch, match="values"):
        check_json(given_text, Bounds(nodes(value) - 1, MANY))


@given(st.text(alphabet='[]{},:"\\a ', max_size=60), st.integers(0, 9), st.integers(0, 9))
def test_what_is_no_json_is_judged_as_well(text, most, deepest):
    try:
        check_json(text, Bounds(most, deepest))
    except TooMuch as error:
        assert error.what in {"values", "levels"}  # noqa: PT017 - any text may be within


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"[" + b"[]," * 5_000_000 + b"[]]", "values"),
        (b"{" + b'"a":0,' * 2_000_000 + b"}", "values"),
        (b'["' + b'a,","' * 2_000_000 + b'"]', "values"),
        (b'""' * 5_000_000 + b"[" * 10_001, "values"),
        (b"[" * 5_000 + b"]" * 5_000, "levels"),
        (b"[" * 5_000, "levels"),
        ((b"[" * 20 + b"]" * 20 + b",") * 100 + b"[" * 5_000, "levels"),
    ],
    ids=range(7),
)
def test_bombs_are_told(text, what):
    with pytest.raises(TooMuch, match=what):
        check_json(text, Bounds(10_000, 100))


def test_a_long_string_is_one_value_whatever_it_holds():
    text = json.dumps("[{,:" * 1_000_000)
    assert check_json(text, Bounds(10, 3)) == 1
