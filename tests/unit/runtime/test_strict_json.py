"""What clients write is read strictly, and within bounds before anything is parsed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.runtime.json_bounds import Bounds, TooMuch
from angzarr.runtime.strict_json import read_strictly

BOUNDS = Bounds(nodes=1_000, depth=20)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@given(values)
def test_what_python_writes_is_read_as_it_was(value):
    assert read_strictly(json.dumps(value), BOUNDS) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "b": {}, "a": 2}', "an object has the name 'a' twice"),
        ('[{"a": {"b": 1, "b": 1}}]', "an object has the name 'b' twice"),
        ("NaN", "NaN is not a JSON number"),
        ("[1e400]", "1e400 is too large a number"),
        ("[" * 21 + "]" * 21, "too many levels"),
        ("[" + "1," * 1_000 + "1]", "too many values"),
        ("{", "Expecting property name"),
    ],
)
def test_what_readers_would_differ_on_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        read_strictly(text, BOUNDS)


def test_a_text_as_deep_as_the_stack_is_not_parsed(monkeypatch):
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(TooMuch):
        read_strictly('{"data": ' + "[" * 200_000, BOUNDS)
