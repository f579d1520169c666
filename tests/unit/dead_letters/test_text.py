from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.text import (
    exact_json_text,
    from_json_text,
    read_json_text,
    to_json_text,
    valid_text,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | (st.times() | st.datetimes(timezones=st.just(UTC))).map(lambda moment: moment.replace(fold=0))
)
keys = st.text() | st.sampled_from(["$bytes", "$dict", "$text"]) | st.integers() | st.binary()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.sampled_from(["$bytes", "$dict"]), inner)
        | st.dictionaries(keys, inner, max_size=2)
    ),
    max_leaves=20,
)


@given(values)
def test_every_value_comes_back_equal_and_of_its_type(value: object) -> None:
    text = to_json_text(value)
    text.encode()
    assert repr(from_json_text(text)) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff", '{"$bytes": "/w=="}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '{"$datetime": "2026-01-02T00:00:00+00:00"}'),
        (date(2026, 1, 2), '{"$date": "2026-01-02"}'),
        (time(3, 4), '{"$time": "03:04:00"}'),
        (Decimal("1.10"), '{"$decimal": "1.10"}'),
        (uuid.UUID(int=1), '{"$uuid": "00000000-0000-0000-0000-000000000001"}'),
        (float("inf"), '{"$float": "inf"}'),
        ((1,), '{"$tuple": [1]}'),
        ({1: 2}, '{"$dict": [[1, 2]]}'),
        ({"$x": 2}, '{"$dict": [["$x", 2]]}'),
        ("größer", '"größer"'),
        ("\udcff", '"\\udcff"'),
    ],
)
def test_the_published_forms_stay(value: object, text: str) -> None:
    assert to_json_text(value) == text


@pytest.mark.parametrize("key", ["$bytes", r"\u0024bytes", r"\u0024\u0062ytes"])
def test_a_tag_is_known_however_its_key_is_spelled(key: str) -> None:
    assert from_json_text(f'{{"a": {{"{key}": "/w=="}}}}') == {"a": b"\xff"}


def test_an_object_of_some_class_is_written_as_its_repr() -> None:
    assert from_json_text(to_json_text({"a": object})) == {"a": "<class 'object'>"}


def test_what_contains_itself_is_written_as_a_note() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert "cannot be written" in from_json_text(to_json_text(ring))


def nested(levels: int, inner: object = 1) -> object:
    return inner if levels == 0 else {"a": nested(levels - 1, inner)}


@pytest.mark.parametrize("made", [nested, lambda levels: [nested(levels - 2, (b"x",))]])
def test_a_hundred_levels_are_written_and_no_more(made: Callable[[int], object]) -> None:
    assert from_json_text(exact_json_text(made(100))) == made(100)
    with pytest.raises(ValueError, match="nested too deeply"):
        exact_json_text(made(101))


@pytest.mark.parametrize(
    "hostile", [nested(900), 10**5000, {10**5000: 1}], ids=["deep", "long", "key"]
)
def test_of_a_mapping_only_what_cannot_be_written_is_a_note(hostile: object) -> None:
    note = f"<{type(hostile).__name__} that cannot be written as JSON>"
    text = to_json_text({"id": "e-1", "x": hostile, "raw": b"\xff"})
    assert from_json_text(text) == {"id": "e-1", "x": note, "raw": b"\xff"}
    assert (
        from_json_text(to_json_text({10**5000: hostile})) == "<dict that cannot be written as JSON>"
    )


def test_a_value_has_one_text_however_deep_its_writer_is() -> None:
    def written(frames: int) -> str:
        return written(frames - 1) if frames else to_json_text({"a": nested(99), "b": nested(400)})

    assert written(500) == written(0)


@pytest.mark.parametrize(
    "text",
    ['{"$bytes": 1}', '{"$bytes": "?"}', '{"$uuid": "1"}', '{"$dict": [1]}', "{", '{"$tuple": 1}'],
)  # fmt: skip
def test_malformed_tags_are_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json_text(text)


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_valid_text_is_valid_and_leaves_good_text_alone(text: str) -> None:
    valid_text(text).encode()
    assert json.loads(json.dumps(valid_text(text))) == valid_text(text)


def test_valid_text_shows_a_lone_surrogate() -> None:
    assert valid_text("a\udcff") == "a\\udcff"
    assert valid_text("größer") == "größer"


numbers = st.integers() | st.integers(-(2**70), 2**70) | st.floats()
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ODD_JSON = [
    "-0", "-0.0", "1e400", "NaN", "-Infinity", r'"\ud800"', "18446744073709551616", " 1 ", "1 2",
    "[1,]", "01", "", " ", "\ufeff1", '"\t"', '{"a": 1, "a": 2}', "3.0000000000000000000000001",
    "00000000000000000000", "1" * 19, "9" * 5000, "[" * 2000, "\ud800", '"\ud800"', "tru",
]  # fmt: skip


@given(json_values.map(json.dumps) | st.sampled_from(ODD_JSON) | st.text(alphabet='[]{}":,0123.e-'))
def test_json_is_read_as_the_standard_library_reads_it(text):
    try:
        wanted = json.JSONDecoder().decode(text)
    except (ValueError, RecursionError) as error:
        with pytest.raises(type(error)):
            read_json_text(text)
    else:
        assert repr(read_json_text(text)) == repr(wanted)
