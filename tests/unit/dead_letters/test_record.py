from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.dead_letters.codec import (
    Encoded,
    decode,
    encode,
    from_line,
    raw_letter,
    read_receipt,
    to_line,
)
from angzarr.dead_letters.letter import unreadable_letter_id
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.record import (
    MAX_RECORD,
    RECORD_CONTENT_TYPE,
    ForeignRecord,
    bounded,
    from_text,
    to_text,
)
from angzarr.errors import DecodeError
from contracts.dead_letters import a_record

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False)
    | st.text(max_size=9) | st.binary(max_size=9) | st.decimals(allow_nan=False, places=3)
    | st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=8,
)
RECORDS = st.builds(
    ForeignRecord,
    broker=st.sampled_from(["kafka", "rabbitmq", "sqs", "pubsub"]),
    place=st.dictionaries(st.text(max_size=9), VALUES, max_size=3),
    is_unique=st.booleans(),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=9), VALUES), max_size=4),
    properties=st.dictionaries(st.text(max_size=9), VALUES, max_size=3),
)


@given(RECORDS, st.binary(max_size=20), st.text(max_size=20))
@settings(max_examples=200)
def test_nothing_that_carried_a_record_is_lost_on_any_way(record, raw, content_type):
    kept = bounded(record)
    sent = RawLetter(domain="d", raw=raw, content_type=content_type, record=kept)
    body, kind = encode(sent)
    assert kind == RECORD_CONTENT_TYPE
    letter = raw_letter("d", body, kind)
    assert (letter.raw, letter.record) == (raw, kept)
    received = read_receipt("d", body, kind, None)
    if received.letter is None:
        assert (received.raw, received.record) == (raw, kept)
        assert from_line(to_line(received)).record == kept
    assert from_text(to_text(kept)) == kept
    json.dumps(kept.as_json(), allow_nan=True)


@given(st.binary(max_size=60), st.text(max_size=60))
def test_what_is_no_record_is_refused_and_kept_as_bytes(raw, text):
    with pytest.raises(DecodeError):
        raw_letter("d", raw, RECORD_CONTENT_TYPE)
    with pytest.raises(DecodeError):
        from_text(text)
    receipt = read_receipt("d", raw, RECORD_CONTENT_TYPE, None)
    assert (receipt.letter, receipt.raw) == (None, raw)


def test_a_hostile_record_is_told_before_it_is_parsed():
    lists = "[" + "[]," * 3_000_000 + "[]]"
    text = to_text(a_record()).replace('"key":', f'"more": {lists}, "key":')
    with pytest.raises(DecodeError):
        from_text(text)
    body = json.dumps({"content_type": "", "record": "{}", "raw": "", "x": 0}).encode()
    with pytest.raises(DecodeError):
        raw_letter("d", body.replace(b'"x": 0', b'"x":' + lists.encode()), RECORD_CONTENT_TYPE)


def id_of(record: ForeignRecord | None, raw: bytes = b"") -> str:
    return RawLetter(domain="d", raw=raw, content_type="", record=record).id


def rabbit(headers: Sequence[tuple[str, Any]] = (), **properties: Any) -> ForeignRecord:
    place = {"queue": "q", "exchange": "e", "routing_key": "r"}
    return ForeignRecord(
        broker="rabbitmq", place=place, headers=tuple(headers), properties=properties
    )


def test_equal_bytes_of_two_places_are_two():
    assert id_of(a_record(1)) != id_of(a_record(2))
    assert id_of(a_record(1)) == id_of(replace(a_record(1), headers=()))
    assert id_of(a_record(1)) != id_of(a_record(1), b"x")


def test_where_nothing_numbers_messages_all_that_is_said_tells_them_apart():
    named = [rabbit([("id", name)]) for name in "ab"]
    assert id_of(named[0]) != id_of(named[1])
    assert id_of(rabbit(correlation_id="1")) != id_of(rabbit(correlation_id="2"))
    again = [rabbit([("id", "a"), ("x-delivery-count", count)]) for count in (0, 5)]
    assert id_of(again[0]) == id_of(again[1])  # the same message, given back


def test_two_messages_that_agree_in_all_that_rabbitmq_says_are_one_entry():
    def died(count: int) -> ForeignRecord:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        death = {"queue": "q", "reason": "expired", "count": count, "time": at}
        return rabbit([("x-death", [death])])

    assert id_of(died(1)) == id_of(died(1))
    assert id_of(died(1)) != id_of(died(2))


def test_bytes_without_a_record_have_the_id_that_they_had():
    assert id_of(None, b"x") == unreadable_letter_id("d", b"x")


def test_a_letter_needs_no_record_and_is_asked_for_none():
    raw = b'{"rejectionReason": "r"}'
    asked: list[int] = []
    receipt = read_receipt("d", raw, "", None, lambda: asked.append(1))  # type: ignore[func-returns-value]
    assert receipt.letter == decode(raw)
    assert not asked


def test_what_was_wrapped_and_can_be_read_by_now_is_a_letter():
    raw = b'{"rejectionReason": "r"}'
    wrapped = encode(RawLetter(domain="d", raw=raw, content_type="", record=a_record()))
    receipt = read_receipt("d", *wrapped, None)
    assert (receipt.letter, receipt.record) == (decode(raw), None)


@pytest.mark.parametrize(
    "record",
    [
        ForeignRecord(broker="x", headers=tuple((f"h{n}", b"x" * 400_000) for n in range(9))),
        ForeignRecord(broker="x", headers=(("h", [0] * 100_000), ("kept", "k"))),
        ForeignRecord(broker="x", headers=(("h", Decimal("1E+1000000")), ("kept", "k"))),
        ForeignRecord(broker="x", properties={"p": "x" * 2 * MAX_RECORD}, place={"a": "b"}),
        ForeignRecord(broker="x", headers=(("h", datetime(1, 1, 1, tzinfo=UTC)),)),
    ],
    ids=["large", "many", "a number", "no header", "a date"],
)
def test_what_carried_a_record_is_bounded_and_says_what_was_left_out(record):
    kept = bounded(record)
    assert len(to_text(kept)) <= MAX_RECORD
    assert len(encode(RawLetter(domain="d", raw=b"", content_type="", record=kept)).body) < 2**21
    assert kept.place == record.place
    if record.header("kept"):
        assert kept.header("kept") == "k"


def test_raw_bytes_without_a_record_travel_as_they_came():
    assert encode(RawLetter(domain="d", raw=b"\xff", content_type="a/b")) == Encoded(b"\xff", "a/b")
