"""The quick reader means what Python's own does, of anything that a queue may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.runtime.json_reader import read_json

#: What the two readers might take for different things.
ODD = (
    b"NaN", b"-Infinity", b"1E400", b"-0", b"-0.0", b"01", b"1.", b"+1", b"1e16", b"5e-324",
    b"9007199254740993", b"18446744073709551615", b"18446744073709551616", b"9" * 30,
    b"-9223372036854775809", b"0.30000000000000004", b"123456789012345678901.5",
    rb'"\ud800"', rb'"\ud83d\ude00"', rb'"\u0000"', b'"\xff"', b'"\x1f"', b'"\x7f"', rb'"\x"',
    '"é\u2028"'.encode(), b"\xef\xbb\xbf1", b"\x0b1", b"[1,]", b'{"a":1,}', b"", b"tru",
    b'{"a":1,"b":2,"a":3}', rb'{"\u0061":1,"a":2}', b"'a'", b"[1 2]", b"/**/1",
)  # fmt: skip
PIECES = st.sampled_from([*ODD, b"[", b"]", b"{", b"}", b",", b":", b'"a"', b" ", b"\t", b"null"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)
TEXTS = (
    st.lists(PIECES, max_size=8).map(b"".join)
    | st.lists(st.sampled_from(ODD), max_size=4).map(lambda all_: b"[" + b",".join(all_) + b"]")
    | st.builds(
        lambda value, ascii_: json.dumps(value, ensure_ascii=ascii_).encode(errors="replace"),
        VALUES,
        st.booleans(),
    )
)


def told(read: Any, text: bytes) -> object:
    """What *read* makes of *text*, types and the order of keys included; or its error."""
    try:
        return repr(read(text))
    except ValueError as error:
        return type(error), str(error)


@given(TEXTS)
@example(b'{"a": 123456789012345678901}')
@example(b"[0.1, 1e-7, 1e+22, 123456789012345678]")
def test_it_reads_as_pythons_own(text: bytes) -> None:
    assert told(read_json, text) == told(lambda one: json.loads(one.decode()), text)


@pytest.mark.parametrize("text", [b'[{"__type__": 1}]', rb'[{"__ty\u0070e__": 1}]'])
def test_objects_with_the_key_are_read_with_care(text: bytes) -> None:
    assert read_json(text, lambda _: "careful", key=b"__type__") == "careful"
    assert read_json(text) == [{"__type__": 1}]


def test_other_texts_are_not() -> None:
    def never(_text: str) -> None:
        pytest.fail("read with care")

    assert read_json('{"a": ["é", "\\u00e9"]}'.encode(), never, key=b"__type__") == {"a": ["é"] * 2}
