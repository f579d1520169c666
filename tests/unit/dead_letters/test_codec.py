from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters import metadata as keys
from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    MAX_LETTER_BYTES,
    PROTOBUF_CONTENT_TYPE,
    Form,
    decode,
    encode,
    partition_key,
    read_receipt,
)
from angzarr.dead_letters.letter import MAX_MESSAGE, MAX_STACK, DeadLetter, Mismatch, Reason
from angzarr.dead_letters.own_json import read_own
from angzarr.dead_letters.wire_form import TASK_MESSAGE, from_wire, to_wire
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message, Priority
from angzarr.payloads.store import PayloadReference, StorageKind
from angzarr.wire.book_pb2 import CommandBook, MergeStrategy
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from angzarr.wire.worker_pb2 import EventFacts, TaskMessage

NOW = datetime(2026, 5, 4, 3, 2, 1, 999_999, tzinfo=UTC)
FORMS = pytest.mark.parametrize("form", list(Form))

words = st.text(max_size=20)
moments = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)
header_values = st.recursive(
    json_values | st.binary(max_size=9) | moments | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
headers = st.dictionaries(words | st.sampled_from(["id", "task"]), header_values, max_size=5)


@st.composite
def events(draw: st.DrawFn) -> Event:
    text = st.none() | words
    return Event(
        id=draw(words),
        type=draw(words),
        data=draw(json_values),
        domain=draw(text),
        root=draw(text | st.uuids().map(str)),
        edition=draw(text),
        sequence=draw(st.none() | st.integers(0, 2**64 - 1)),
        correlation_id=draw(text),
        causation_id=draw(text),
        tenant_id=draw(text),
        priority=draw(st.sampled_from(Priority)),
        config_pins=draw(st.dictionaries(words, words, max_size=3)),
        occurred_at=draw(st.none() | moments),
        traceparent=draw(text),
    )


@st.composite
def messages(draw: st.DrawFn, data: object = None) -> Message:
    celery_body = st.just(json.dumps([[data], {}, {"chain": None}]).encode())
    return Message(
        body=draw(celery_body | st.binary() | json_values.map(lambda v: json.dumps(v).encode())),
        content_type=draw(words),
        content_encoding=draw(words),
        headers=draw(headers),
        queue=draw(words),
        exchange=draw(words),
        routing_key=draw(words),
        priority=draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
        properties=draw(headers),
    )


payloads = st.builds(
    PayloadReference,
    kind=st.sampled_from(StorageKind),
    uri=words,
    sha256=st.binary(max_size=40).map(bytes.hex),
    size=st.integers(0, 2**64 - 1),
    stored_at=st.none() | moments,
)

_UINT32 = st.integers(0, 2**32 - 1)
mismatches = st.builds(Mismatch, _UINT32, _UINT32, st.integers(-(2**31), 2**31 - 1))

RESERVED = {
    "id", "letter_id", "original_queue", "tenant_id", "entity_id", "trace_id", "event_id",
    "event_type", keys.REDACTED, keys.SIGNATURE, *(fact.key for fact in keys._FACTS),
}  # fmt: skip


@st.composite
def letters(draw: st.DrawFn) -> DeadLetter:
    event = draw(st.none() | events())
    times = st.none() | moments
    return DeadLetter(
        id=draw(st.text(min_size=1, max_size=20)),
        domain=draw(words),
        handler=draw(words),
        reason=draw(st.sampled_from(Reason)),
        explanation=draw(words),
        message=draw(messages(event.data if event else None)),
        event=event,
        payload=draw(st.none() | payloads),
        error_type=draw(words),
        error_code=draw(words),
        error_message=draw(words),
        error_stack=draw(words),
        category=draw(words),
        attempts=draw(st.integers(0, 999_999_999)),
        replay=draw(st.integers(0, 999_999_999)),
        first_attempt_at=draw(times),
        last_attempt_at=draw(times),
        sent_to_dlq_at=draw(moments),
        fingerprint=draw(words),
        worker=draw(words),
        version=draw(words),
        component=draw(words),
        component_type=draw(words),
        mismatch=draw(st.none() | mismatches),
        metadata=draw(
            st.dictionaries(words.filter(lambda key: key not in RESERVED), words, max_size=3)
        ),
    )


def a_letter(**changes: object) -> DeadLetter:
    body = json.dumps([[{"order_id": "o-1"}], {}, {"callbacks": None}]).encode()
    event = Event(
        id="e-1",
        type="order.placed",
        data={"order_id": "o-1"},
        root="8d5c2a3e-77f1-4f0a-8a53-0d0f3d0c5a11",
        correlation_id="c-1",
        tenant_id="acme",
        sequence=7,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    message = Message(
        body=body,
        content_type="application/json",
        content_encoding="utf-8",
        headers={"task": "shop.sync", "id": "t-1", "retries": 2, "eta": None, "raw": b"\xff"},
        queue="orders",
        priority=5,
    )
    letter = DeadLetter(
        id="l-1",
        domain="order",
        handler="shop.sync",
        reason=Reason.EXHAUSTED,
        explanation="5 attempts used",
        message=message,
        event=event,
        error_type="TimeoutError",
        error_message="no answer",
        error_stack="Traceback …",
        category="transient",
        attempts=5,
        sent_to_dlq_at=NOW,
    )
    return replace(letter, **changes)  # type: ignore[arg-type]


def foreign(**fields: object) -> AngzarrDeadLetter:
    wire = AngzarrDeadLetter(rejection_reason="sequence mismatch", **fields)  # type: ignore[arg-type]
    wire.cover.domain = "cart"
    wire.cover.root.value = bytes(range(16))
    page = wire.rejected_command.pages.add(merge_strategy=MergeStrategy.MERGE_MANUAL)
    page.command.CopyFrom(AnyMessage(type_url="type.example/cart.AddItem", value=b"\x08\x01"))
    wire.occurred_at.FromJsonString("2026-01-02T03:04:05.123456789Z")
    wire.source_component_type = "aggregate"
    wire.sequence_mismatch.expected_sequence = 3
    wire.sequence_mismatch.actual_sequence = 5
    return wire


@given(letters(), st.sampled_from(Form))
def test_a_letter_comes_back_equal_in_both_forms(letter: DeadLetter, form: Form) -> None:
    assert decode(*encode(letter, form)) == letter


@FORMS
def test_the_form_is_told_by_the_content_type_or_by_its_first_byte(form: Form) -> None:
    encoded = encode(a_letter(), form)
    expected = JSON_CONTENT_TYPE if form is Form.JSON else PROTOBUF_CONTENT_TYPE
    assert encoded.content_type == expected
    assert decode(encoded.body) == decode(*encoded) == a_letter()


def test_people_can_read_the_json() -> None:
    data = json.loads(encode(a_letter()).body)
    task = data["rejectedEvents"]["pages"][0]["event"]
    assert task["@type"] == "type.googleapis.com/angzarr.worker.TaskMessage"
    assert task["task"] == "shop.sync"
    assert task["args"] == '[{"order_id": "o-1"}]'
    assert "data" not in task["event"], "the payload is written once"
    assert data["rejectionReason"] == "5 attempts used"
    assert data["cover"]["domain"] == "order"
    assert data["eventProcessingFailed"]["retryCount"] == 5
    assert data["sourceComponentType"] == "handler"


def test_people_can_read_where_an_offloaded_body_is() -> None:
    payload = PayloadReference(
        kind=StorageKind.S3, uri="s3://b/ab/cd", sha256="ab" * 32, size=3, stored_at=NOW
    )
    letter = a_letter()
    assert letter.event is not None
    offloaded = replace(
        letter,
        message=replace(letter.message, body=b""),
        event=replace(letter.event, data=None),
        payload=payload,
    )
    data = json.loads(encode(offloaded).body)
    task = data["rejectedEvents"]["pages"][0]["event"]
    assert task["payload"] == {
        "storageType": "PAYLOAD_STORAGE_TYPE_S3",
        "uri": "s3://b/ab/cd",
        "contentHash": "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=",
        "originalSize": "3",
        "storedAt": "2026-05-04T03:02:01.999999Z",
    }
    assert not {"args", "kwargs", "embed", "rawBody"} & task.keys()
    assert "data" not in task["event"]


PACKED = PayloadReference(
    kind=StorageKind.S3, uri="s3://b/ab/cd", sha256="ab" * 32, size=3, stored_at=NOW,
    encoding="zstd", unpacked_size=30, unpacked_sha256="cd" * 32,
)  # fmt: skip


def without_body(payload: PayloadReference, **fields: Any) -> DeadLetter:
    letter = a_letter()
    assert letter.event is not None
    return replace(
        letter,
        message=replace(letter.message, body=b""),
        event=replace(letter.event, data=None),
        payload=payload,
        **fields,
    )


@FORMS
def test_a_packed_body_is_named_with_what_it_unpacks_to(form: Form) -> None:
    letter = without_body(PACKED)
    assert decode(*encode(letter, form)) == letter
    assert not decode(*encode(letter, form)).envelope


def test_a_task_message_that_says_more_than_is_known_is_held() -> None:
    """So an older release takes a packed body, which it could not unpack."""
    wire = AngzarrDeadLetter.FromString(encode(without_body(PACKED), Form.BINARY).body)
    wire.rejected_events.pages[0].event.value += b"\xf2\x07\x01x"  # field 126: none knows it
    assert decode(wire.SerializeToString()).envelope


@FORMS
@pytest.mark.parametrize("name", ["Gone", "Corrupt", "Elsewhere"])
def test_the_details_say_which_body_could_not_be_had(form: Form, name: str) -> None:
    letter = without_body(PACKED, error_type=f"angzarr.errors.Payload{name}")
    encoded = encode(letter, form)
    assert decode(*encoded) == letter
    details = to_wire(letter).payload_retrieval_failed
    assert (details.uri, details.content_hash.hex()) == (PACKED.uri, PACKED.sha256)
    assert (details.original_size, details.error) == (3, letter.error_message)
    assert decode(*encode(decode(*encoded), Form.JSON)) == letter


@FORMS
def test_a_payload_in_a_kind_of_store_that_is_new_to_us_survives(form: Form) -> None:
    task = TaskMessage(task="t")
    task.payload.uri = "azure://x"
    task.payload.storage_type = 9  # type: ignore[assignment]
    task.payload.stored_at.FromJsonString("2026-01-02T03:04:05.123456789Z")
    wire = AngzarrDeadLetter()
    wire.rejected_events.pages.add().event.Pack(task)
    letter = decode(wire.SerializeToString())
    assert letter.payload is not None
    assert (letter.payload.kind, letter.payload.uri) == (StorageKind.UNSPECIFIED, "azure://x")
    again = AngzarrDeadLetter.FromString(encode(letter, Form.BINARY).body)
    assert TaskMessage.FromString(again.rejected_events.pages[0].event.value) == task
    assert decode(*encode(letter, form)) == letter


def test_the_metadata_has_the_published_keys() -> None:
    written = json.loads(encode(a_letter(fingerprint="f", worker="w", version="1")).body)
    assert written["metadata"] == {
        "id": "dlq_t-1",
        "letter_id": "l-1",
        "original_queue": "orders",
        "handler": "shop.sync",
        "reason": "exhausted",
        "category": "transient",
        "error_type": "TimeoutError",
        "error_code": "UNKNOWN",
        "error_message": "no answer",
        "error_stack": "Traceback …",
        "attempts": "5",
        "replay": "0",
        "sent_to_dlq_at": "2026-05-04T03:02:01.999999+00:00",
        "fingerprint": "f",
        "worker": "w",
        "version": "1",
        "event_id": "e-1",
        "event_type": "order.placed",
        "tenant_id": "acme",
        "entity_id": "8d5c2a3e-77f1-4f0a-8a53-0d0f3d0c5a11",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }


def test_stack_and_messages_are_cut_when_written() -> None:
    long = a_letter(error_stack="s" * 99_999, error_message="m" * 99_999, explanation="e" * 99_999)
    read = decode(*encode(long))
    assert len(read.error_stack) == MAX_STACK
    assert len(read.error_message) == len(read.explanation) == MAX_MESSAGE


@FORMS
def test_text_that_protobuf_refuses_is_written_all_the_same(form: Form) -> None:
    letter = a_letter(error_message="bad \udcff", handler="\ud800", metadata={"k\udcff": "v\udcff"})
    read = decode(*encode(letter, form))
    assert read.error_message == "bad \\udcff"
    assert read.metadata == {"k\\udcff": "v\\udcff"}


@FORMS
def test_numbers_that_no_broker_takes_do_not_stop_a_letter(form: Form) -> None:
    letter = a_letter()
    assert letter.event is not None
    odd = replace(
        letter,
        message=replace(letter.message, priority=2**40),
        event=replace(letter.event, sequence=10**30),
    )
    read = decode(*encode(odd, form))
    assert read.message.priority is None
    assert read.event is not None
    assert read.event.sequence is None


def test_a_body_that_would_not_be_restored_exactly_travels_raw() -> None:
    letter = a_letter()
    for body in (b"[[1],{},{}]", b"[[1], {}]", b"\xff\xfe", b"[[1], {}, {}] ", b"", b"[" * 9_999):
        raw = replace(letter, message=replace(letter.message, body=body))
        assert decode(*encode(raw)).message.body == body


@pytest.mark.parametrize(("data", "first"), [(1, True), (1.0, 1), ({"1": 2}, {1: 2}), (None, 0)])
def test_data_that_only_looks_like_the_first_argument_is_kept(data: object, first: object) -> None:
    letter = a_letter()
    assert letter.event is not None
    body = json.dumps([[first], {}, {}]).encode()
    odd = replace(
        letter,
        message=replace(letter.message, body=body),
        event=replace(letter.event, data=data),
    )
    read = decode(*encode(odd))
    assert read.event is not None
    assert repr(read.event.data) == repr(data)


@FORMS
def test_unknown_fields_survive_read_and_write(form: Form) -> None:
    wire = foreign()
    raw = wire.SerializeToString() + b"\xf8\x07\x2a"  # field 127 = 42
    letter = decode(raw, PROTOBUF_CONTENT_TYPE)
    again = AngzarrDeadLetter.FromString(encode(letter, form).body)
    assert b"\xf8\x07\x2a" in again.SerializeToString()
    assert again.rejected_command == wire.rejected_command
    assert again.occurred_at == wire.occurred_at
    assert again.sequence_mismatch == wire.sequence_mismatch
    assert decode(*encode(letter, form)) == letter


def test_unknown_fields_inside_the_task_message_survive() -> None:
    wire = AngzarrDeadLetter.FromString(encode(a_letter(), Form.BINARY).body)
    wire.rejected_events.pages[0].event.value += b"\xf8\x07\x2a"
    letter = decode(wire.SerializeToString())
    assert letter.message == a_letter().message
    again = AngzarrDeadLetter.FromString(encode(replace(letter, replay=3)).body)
    assert again.rejected_events.pages[0].event.value.endswith(b"\xf8\x07\x2a")
    assert again.metadata["replay"] == "3"


def test_a_letter_of_others_is_readable() -> None:
    letter = decode(foreign().SerializeToString(), PROTOBUF_CONTENT_TYPE)
    assert (letter.domain, letter.component_type) == ("cart", "aggregate")
    assert letter.event is None
    assert letter.error_type == "SequenceMismatch"
    assert letter.error_message == "expected sequence 3, the aggregate is at 5"
    assert (
        letter.message.content_type == 'application/x-protobuf; messageType="angzarr.CommandBook"'
    )
    assert CommandBook.FromString(letter.message.body) == foreign().rejected_command
    assert letter.sent_to_dlq_at == datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
    assert letter.id == decode(foreign().SerializeToString()).id


def test_the_id_of_a_foreign_letter_heeds_no_order_of_a_map() -> None:
    """Which order map entries are written in, protobuf leaves to chance."""
    pins = [TaskMessage(event=EventFacts(config_pins={name: "v1"})) for name in ("a", "b")]
    first, second = (one.SerializeToString() for one in pins)

    def with_task(value: bytes) -> bytes:
        wire = AngzarrDeadLetter()
        task = AnyMessage(type_url=f"type.googleapis.com/{TASK_MESSAGE}", value=value)
        wire.rejected_events.pages.add().event.CopyFrom(task)
        return wire.SerializeToString()

    assert decode(with_task(first + second)).id == decode(with_task(second + first)).id


def test_failed_processing_told_by_others_gives_attempts_and_category() -> None:
    wire = AngzarrDeadLetter()
    wire.event_processing_failed.error = "boom"
    wire.event_processing_failed.retry_count = 3
    wire.event_processing_failed.is_transient = True
    letter = decode(wire.SerializeToString())
    assert (letter.error_message, letter.attempts, letter.category) == ("boom", 3, "transient")


def test_a_payload_that_could_not_be_fetched_is_undeliverable() -> None:
    wire = AngzarrDeadLetter()
    wire.payload_retrieval_failed.error = "gone"
    letter = decode(wire.SerializeToString())
    assert (letter.reason, letter.error_message) == (Reason.UNDELIVERABLE, "gone")


@FORMS
def test_malformed_facts_of_others_stay_in_the_metadata(form: Form) -> None:
    wire = foreign(metadata={"attempts": "many", "first_attempt_at": "?", "id": "dlq_9", "x": "y"})
    letter = decode(wire.SerializeToString())
    assert letter.metadata == dict(wire.metadata)
    again = decode(*encode(letter, form))
    assert again == letter


@FORMS
def test_json_of_others_with_unknown_types_and_fields_survives(form: Form) -> None:
    data = {
        "cover": {"domain": "cart", "novel": 1},
        "rejectedEvents": {
            "pages": [{"event": {"@type": "type.example/cart.ItemAdded", "sku": "s"}}]
        },
        "rejectionReason": "why",
        "metadata": {"x": "y"},
        "novelty": {"deep": [1, 2]},
    }
    letter = decode(json.dumps(data).encode(), JSON_CONTENT_TYPE)
    assert (letter.domain, letter.explanation, letter.metadata) == ("cart", "why", {"x": "y"})
    assert json.loads(letter.message.body) == data["rejectedEvents"]
    assert letter.message.content_type == 'application/json; messageType="angzarr.EventBook"'
    encoded = encode(replace(letter, replay=1), form)
    again = json.loads(encoded.body)
    assert again["novelty"] == data["novelty"]
    assert again["cover"] == data["cover"]
    assert again["rejectedEvents"] == data["rejectedEvents"]
    assert again["metadata"]["replay"] == "1"
    assert decode(*encoded) == replace(letter, replay=1)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"order_id": "o-777", "iban": "DE00"},
        {"metadata": {"letter_id": "x"}},
        {"occurredAt": "2026-01-02T03:04:05Z", "metadata": {"id": "7"}, "order": 1},
        {"cover": {"title": "a book"}, "sourceComponent": "crm"},
        {"rejectionReason": ""},
    ],
)
def test_json_that_says_neither_what_was_rejected_nor_why_is_no_letter(data: Any) -> None:
    with pytest.raises(DecodeError, match="it is not a letter of angzarr"):
        decode(json.dumps(data).encode(), JSON_CONTENT_TYPE)


@pytest.mark.parametrize("wire", [AngzarrDeadLetter(), AngzarrDeadLetter(metadata={"a": "b"})])
def test_protobuf_that_says_neither_is_no_letter_either(wire: AngzarrDeadLetter) -> None:
    with pytest.raises(DecodeError, match="it is not a letter of angzarr"):
        decode(wire.SerializeToString(), PROTOBUF_CONTENT_TYPE)


@pytest.mark.parametrize(
    "data",
    [
        {"rejectionReason": "why", "order_id": 7},
        {"payloadRetrievalFailed": {"error": "gone"}, "order_id": 7},
    ],
)
def test_what_a_letter_without_a_payload_holds_besides_is_kept_and_is_no_payload(data: Any) -> None:
    letter = decode(json.dumps(data).encode(), JSON_CONTENT_TYPE)
    assert letter.message.body == b""
    assert json.loads(letter.envelope)["order_id"] == 7
    assert decode(*encode(letter)) == letter


def test_an_unknown_field_beside_a_task_message_in_json_leaves_the_message_readable() -> None:
    data = json.loads(encode(a_letter()).body) | {"novelty": 1}
    letter = decode(json.dumps(data).encode())
    assert letter.message == a_letter().message
    assert letter.event == a_letter().event


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_later_generation_is_told_by_its_type_and_mapped(number: int) -> None:
    wire = foreign()
    wire.rejected_command.pages[0].merge_strategy = number  # type: ignore[assignment]
    wire.sequence_mismatch.merge_strategy = number  # type: ignore[assignment]
    later = 'application/x-protobuf; messageType="io.angzarr.v1.AngzarrDeadLetter"'
    letter = decode(wire.SerializeToString(), later)
    read = AngzarrDeadLetter.FromString(encode(letter, Form.BINARY).body)
    assert read.rejected_command.pages[0].merge_strategy == number - 1
    assert read.sequence_mismatch.merge_strategy == number - 1


def test_the_later_generation_in_json_is_mapped() -> None:
    data = {
        "rejectedCommand": {
            "pages": [
                {"mergeStrategy": 4},
                {"mergeStrategy": "MERGE_STRICT"},
                {"mergeStrategy": "MERGE_STRATEGY_UNSPECIFIED"},
            ]
        },
        "sequenceMismatch": {"mergeStrategy": 2},
    }
    later = 'application/json; messageType="io.angzarr.v1.AngzarrDeadLetter"'
    letter = decode(json.dumps(data).encode(), later)
    read = AngzarrDeadLetter.FromString(encode(letter, Form.BINARY).body)
    assert [page.merge_strategy for page in read.rejected_command.pages] == [3, 1, 0]
    assert read.sequence_mismatch.merge_strategy == MergeStrategy.MERGE_STRICT


def test_bytes_of_the_wire_form_stay() -> None:
    wire = AngzarrDeadLetter(rejection_reason="r", source_component="c", source_component_type="t")
    wire.cover.domain = "d"
    wire.rejected_events.pages.add().header.sequence = 1
    wire.occurred_at.seconds = 1
    wire.metadata["k"] = "v"
    wire.payload_retrieval_failed.uri = "u"
    assert wire.SerializeToString(deterministic=True) == (
        b"\x0a\x03\x12\x01d\x1a\x01r\x3a\x02\x08\x01\x42\x06\x0a\x01k\x12\x01v"
        b"\x4a\x06\x1a\x04\x0a\x02\x08\x01\x52\x01c\x5a\x01t\x72\x03\x12\x01u"
    )


@pytest.mark.parametrize(
    ("raw", "content_type", "sentence"),
    [
        (b"\xff", PROTOBUF_CONTENT_TYPE, "not a protobuf AngzarrDeadLetter"),
        (b"{", JSON_CONTENT_TYPE, "is not JSON"),
        (b"\xff", JSON_CONTENT_TYPE, "is not JSON"),
        (b"[" * 100_000, JSON_CONTENT_TYPE, "more than the 200 levels"),
        (b"[]", JSON_CONTENT_TYPE, "JSON but no object"),
        (b'{"cover": 1}', JSON_CONTENT_TYPE, "cover is malformed"),
        (b"{}", "text/html", "'text/html' is neither protobuf nor JSON"),
        (b"{}", 'application/json; messageType="a.B"', "names 'a.B', not a dead letter"),
        (b"x" * (MAX_LETTER_BYTES + 1), "", "more than the 33554432"),
        (b"\x1a\x01r\x7b\x7c", PROTOBUF_CONTENT_TYPE, "nothing but unknown fields"),
    ],
    ids=range(10),
)
def test_hostile_letters_are_refused_in_a_sentence(
    raw: bytes, content_type: str, sentence: str
) -> None:
    with pytest.raises(DecodeError, match=sentence):
        decode(raw, content_type)


@pytest.mark.parametrize(
    "task",
    [
        TaskMessage(headers="[]"),
        TaskMessage(headers="{"),
        TaskMessage(properties='{"$bytes": 1}'),
        TaskMessage(headers='{"a": ' * 5_000 + "1" + "}" * 5_000),
    ],
    ids=["no object", "no JSON", "bad tag", "too deep"],
)
def test_a_malformed_task_message_is_refused(task: TaskMessage) -> None:
    wire = AngzarrDeadLetter()
    wire.rejected_events.pages.add().event.Pack(task)
    with pytest.raises(DecodeError):
        decode(wire.SerializeToString())


def test_a_truncated_task_message_is_refused() -> None:
    wire = AngzarrDeadLetter()
    wire.rejected_events.pages.add().event.Pack(TaskMessage(task="x"))
    wire.rejected_events.pages[0].event.value = b"\x0a\xff"
    with pytest.raises(DecodeError, match="TaskMessage inside the letter is malformed"):
        decode(wire.SerializeToString())


content_types = st.sampled_from(["", JSON_CONTENT_TYPE, PROTOBUF_CONTENT_TYPE]) | words


def decodes_or_refuses(raw: bytes, content_type: str) -> None:
    try:
        letter = decode(raw, content_type)
    except DecodeError:
        return
    for form in Form:
        assert decode(*encode(letter, form)).id == letter.id


@given(st.binary(), content_types)
def test_any_bytes_decode_or_are_refused(raw: bytes, content_type: str) -> None:
    decodes_or_refuses(raw, content_type)


@given(json_values.map(lambda value: json.dumps(value).encode()), content_types)
def test_any_json_decodes_or_is_refused(raw: bytes, content_type: str) -> None:
    decodes_or_refuses(raw, content_type)


@given(st.sampled_from(Form), st.data())
def test_a_damaged_letter_decodes_or_is_refused(form: Form, data: st.DataObject) -> None:
    encoded = encode(a_letter(metadata={"k": "v"}), form)
    body = bytearray(encoded.body)
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=5)):
        body[at] = data.draw(st.integers(0, 255))
    decodes_or_refuses(bytes(body), encoded.content_type)


FIELDS = [field.json_name for field in AngzarrDeadLetter.DESCRIPTOR.fields]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=3))
def test_json_with_known_fields_of_wrong_types_is_refused(fields: dict[str, object]) -> None:
    decodes_or_refuses(json.dumps(fields).encode(), JSON_CONTENT_TYPE)


# -- without protobuf ------------------------------------------------------------------------


def read_by_protobuf(raw: bytes) -> DeadLetter | None:
    try:
        return from_wire(json_format.Parse(raw.decode(), AngzarrDeadLetter()))
    except (json_format.ParseError, DecodeError, ValueError, TypeError):
        return None


@given(letters())
def test_our_own_json_is_that_of_protobuf(letter: DeadLetter) -> None:
    assert json.loads(encode(letter).body) == json_format.MessageToDict(to_wire(letter))


@given(letters())
def test_our_own_json_reads_as_by_protobuf(letter: DeadLetter) -> None:
    raw = encode(letter).body
    assert read_own(raw, LETTER) in (None, read_by_protobuf(raw))


def test_a_letter_of_a_worker_is_read_without_protobuf() -> None:
    letter = a_letter()
    assert read_own(encode(letter).body, LETTER) == letter
    assert read_own(encode(replace(letter, event=None)).body, LETTER) == replace(letter, event=None)


@given(st.data())
def test_what_is_changed_in_our_json_reads_as_by_protobuf(data: st.DataObject) -> None:
    """Whatever others put into it: nothing they say is dropped, nor read as another thing."""
    letter = json.loads(encode(data.draw(letters())).body)
    places = list(objects_in(letter))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places))
        key = data.draw(st.sampled_from([*place, *FIELDS]) | words)
        if data.draw(st.booleans()):
            place[key] = data.draw(json_values)
        else:
            place.pop(key, None)
    raw = json.dumps(letter).encode()
    assert read_own(raw, LETTER) in (None, read_by_protobuf(raw))


def objects_in(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:  # type: ignore[union-attr]
        if isinstance(inner, dict | list):
            yield from objects_in(inner)


def test_a_receipt_says_why_its_letter_is_missing() -> None:
    receipt = read_receipt("order", b"\xff", PROTOBUF_CONTENT_TYPE, handle=1)
    assert receipt.letter is None
    assert receipt.problem == "the letter is not a protobuf AngzarrDeadLetter"
    assert receipt.raw == b"\xff"


def test_a_receipt_holds_its_letter() -> None:
    encoded = encode(a_letter())
    receipt = read_receipt("order", encoded.body, encoded.content_type, handle=1)
    assert (receipt.letter, receipt.problem, receipt.handle) == (a_letter(), "", 1)


def test_letters_are_keyed_by_root_then_correlation() -> None:
    letter = a_letter()
    assert letter.event is not None
    assert partition_key(letter) == letter.event.root
    assert partition_key(replace(letter, event=replace(letter.event, root=None))) == "c-1"
    assert partition_key(replace(letter, event=None)) == ""
