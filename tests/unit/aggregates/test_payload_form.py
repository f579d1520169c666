"""Payloads as protobuf's Any, there and back, and forged ones."""

from __future__ import annotations

import json
import math

import pytest
from google.protobuf import any_pb2, struct_pb2, wrappers_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.aggregates.wire_form import pack, unpack
from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.wire import book_pb2, identity_pb2
from angzarr.wire.worker_pb2 import JsonMessage

text = st.text()
odd_text = st.text(st.characters())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | odd_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_text, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
#: Types that nobody here knows as protobuf.
names = st.text(st.characters(exclude_categories=["Cs"])).map(lambda name: f"x.{name}")


@given(names, json_values)
@example("x.", {"$bytes": "no base64"})
@example("x.", {"$bytes": "YR=="})
@example("x.", {"$bytes": 7})
@example("x./y/", None)
def test_json_of_any_type_comes_back(name, data):
    packed = pack(name, data)
    assert packed.type_url == "type.googleapis.com/angzarr.worker.JsonMessage"
    assert unpack(packed) == (name, data)


@given(names.filter(lambda name: "/" not in name), st.binary())
@example("x.\n", b"")
def test_a_payload_that_nobody_here_knows_is_kept_byte_for_byte(name, value):
    packed = any_pb2.Any(type_url=f"type.googleapis.com/{name}", value=value)
    told, data = unpack(packed)
    assert told == name
    assert json.loads(json.dumps(data)) == data
    assert pack(told, data) == packed


@pytest.mark.parametrize(
    "message",
    [
        Duration(seconds=5, nanos=7),
        Timestamp(seconds=5),
        wrappers_pb2.StringValue(value="ü\x00"),
        wrappers_pb2.BytesValue(value=b"\xff"),
        wrappers_pb2.Int64Value(value=2**63 - 1),
        wrappers_pb2.DoubleValue(value=math.inf),
        struct_pb2.Value(null_value=0),
        identity_pb2.Cover(domain="d", root=identity_pb2.UUID(value=b"\xff" * 16)),
        book_pb2.EventPage(no_commit=True, cascade_id=""),
        book_pb2.CommandPage(merge_strategy=book_pb2.MERGE_MANUAL),
    ],
)
@pytest.mark.parametrize("prefix", ["type.googleapis.com/", "https://types.example/a/", "/"])
def test_a_message_that_is_known_here_is_itself(message, prefix):
    packed = any_pb2.Any(
        type_url=prefix + message.DESCRIPTOR.full_name, value=message.SerializeToString()
    )
    name, data = unpack(packed)
    assert name == message.DESCRIPTOR.full_name
    again = pack(name, data)
    assert again.type_url == f"type.googleapis.com/{name}"
    read = type(message)()
    assert again.Unpack(read)
    assert read == message


@pytest.mark.parametrize("prefix", ["type.googleapis.com/", "/"])
def test_the_type_of_a_json_payload_may_be_of_any_prefix(prefix):
    value = JsonMessage(type="T", data='{"n": 1}').SerializeToString()
    packed = any_pb2.Any(type_url=f"{prefix}angzarr.worker.JsonMessage", value=value)
    assert unpack(packed) == ("T", {"n": 1})


@pytest.mark.parametrize("url", ["", "/", "type.googleapis.com/"])
def test_a_payload_without_a_type_is_malformed(url):
    with pytest.raises(DecodeError, match="no type"):
        unpack(any_pb2.Any(type_url=url))


@pytest.mark.parametrize(
    "text",
    ["{", "nul", '"\\x"', "NaN", "[Infinity]", '{"n": -Infinity}', "[" * 100_000, "1" * 10_000],
)
def test_what_is_no_json_is_malformed_and_not_repeated(text):
    packed = any_pb2.Any()
    packed.Pack(JsonMessage(type="T", data=text))
    with pytest.raises(
        DecodeError, match=r"cannot be read as angzarr\.worker\.JsonMessage"
    ) as caught:
        unpack(packed)
    assert len(str(caught.value)) < 200


KNOWN = [
    "google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.Value",
    "google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.FieldMask",
    "google.protobuf.StringValue", "angzarr.EventBook", "angzarr.CommandBook", "angzarr.Cover",
    "angzarr.AngzarrDeadLetter", "angzarr.worker.JsonMessage", "angzarr.worker.TaskMessage",
]  # fmt: skip


@given(st.sampled_from(KNOWN), st.binary())
@example("google.protobuf.Timestamp", Timestamp(seconds=2**60).SerializeToString())
@example("google.protobuf.Duration", Duration(seconds=2**60).SerializeToString())
@example("google.protobuf.Any", any_pb2.Any(type_url="x/y", value=b"z").SerializeToString())
@example("google.protobuf.Any", any_pb2.Any(type_url="y").SerializeToString())
@example("google.protobuf.Value", b"")
@example("google.protobuf.Value", struct_pb2.Value(number_value=math.nan).SerializeToString())
def test_forged_bytes_are_a_value_or_malformed(name, value):
    try:
        told, data = unpack(any_pb2.Any(type_url=f"t/{name}", value=value))
    except DecodeError:
        return
    json.dumps(data, allow_nan=False)
    try:
        pack(told, data)
    except UnserializableEvent:
        assert told != name  # a JSON payload that says it is a message that is known here


def test_nesting_without_end_is_malformed():
    inner = any_pb2.Any()
    for _ in range(2_000):
        outer = any_pb2.Any()
        outer.Pack(inner)
        inner = outer
    with pytest.raises(DecodeError):
        unpack(inner)


deep: list = []
for _ in range(100_000):
    deep = [deep]
loop: list = []
loop.append(loop)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("T", math.nan),
        ("T", {"n": [math.inf]}),
        ("T", object()),
        ("T", b"x"),
        ("T", deep),
        ("T", loop),
        ("\ud800", 1),
        ("google.protobuf.Duration", "five"),
        ("google.protobuf.Duration", 5),
        ("angzarr.Cover", None),
        ("angzarr.Cover", {"domain": 5}),
        ("angzarr.Cover", {"domain": "\ud800"}),
        ("angzarr.Cover", {"no such field": 5}),
        ("google.protobuf.Value", deep),
    ],
)
def test_what_cannot_be_written_is_told_by_its_type(name, data):
    with pytest.raises(UnserializableEvent, match="cannot be written as protobuf"):
        pack(name, data)
