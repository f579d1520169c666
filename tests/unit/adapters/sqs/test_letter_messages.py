"""Letters and bytes become texts and entries that SQS takes; SNS wraps them, and they are read."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.adapters.sqs.letter_messages import (
    BASE64,
    BATCH,
    BatchEntry,
    Text,
    as_bytes,
    as_text,
    batches,
    entry_of,
    is_legal,
    ordering,
    problem_of,
    told_by,
    unwrapped,
)
from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    PROTOBUF_CONTENT_TYPE,
    Encoded,
    Form,
    encode,
)
from angzarr.dead_letters.queue import RawLetter
from angzarr.events.event import Event
from contracts.dead_letters import a_letter

TYPES = st.sampled_from(["", JSON_CONTENT_TYPE, PROTOBUF_CONTENT_TYPE, "text/odd"])
NOTIFICATION = {"Type": "Notification", "TopicArn": "arn", "Message": "x"}


def raw_as_text(raw: bytes, content_type: str) -> Text:
    return as_text(RawLetter(domain="order", raw=raw, content_type=content_type), Form.JSON)


@given(st.binary() | st.text().map(str.encode), TYPES)
@example(b"", "")
@example(b"", JSON_CONTENT_TYPE)
@example(b"abcd", "text/odd")
@example(b"\xff", JSON_CONTENT_TYPE)
@example("\ufffe".encode(), "text/odd")
@example(json.dumps(NOTIFICATION).encode(), "")
def test_bytes_of_any_kind_are_read_as_they_were(raw, content_type):
    sent = raw_as_text(raw, content_type)
    assert is_legal(sent.text)
    attributes = {"content_type": sent.content_type} if sent.content_type else {}
    if sent.transfer_encoding:
        attributes["content_transfer_encoding"] = sent.transfer_encoding
    read = unwrapped(told_by(attributes, sent.text))
    assert (as_bytes(read), read.content_type) == (raw, content_type)


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [(b"{damaged", JSON_CONTENT_TYPE), (b"no letter", JSON_CONTENT_TYPE), (b"so, so", "text/odd")],
)
def test_a_text_stays_readable_for_people(raw, content_type):
    assert raw_as_text(raw, content_type) == Text(raw.decode(), content_type)


def test_a_letter_travels_as_before():
    letter = a_letter("order")
    text = as_text(letter, Form.JSON)
    assert text == Text(encode(letter).body.decode(), JSON_CONTENT_TYPE)
    binary = as_text(letter, Form.BINARY)
    assert Encoded(as_bytes(binary), binary.content_type) == encode(letter, Form.BINARY)
    assert binary.transfer_encoding == ""


def test_characters_that_sqs_refuses_make_a_letter_binary():
    letter = a_letter("order", explanation="odd \ufffe")
    text = as_text(letter, Form.JSON)
    assert base64.b64decode(text.text) == encode(letter, Form.BINARY).body


@given(st.text(), TYPES, st.sampled_from(["", BASE64, "gzip"]))
def test_hostile_texts_are_bytes_of_some_kind(text, content_type, transfer_encoding):
    assert isinstance(as_bytes(Text(text, content_type, transfer_encoding)), bytes)


SQS_NAME = re.compile(r"[!-~]{1,128}")


@given(st.text(max_size=200), st.text(min_size=1, max_size=200))
def test_any_root_and_id_give_names_that_sqs_takes(root, letter_id):
    event = Event(id="e-1", type="order.placed", data={}, root=root)
    letter = a_letter("order", id=letter_id, event=event)
    names = ordering(letter)
    assert all(SQS_NAME.fullmatch(name) for name in names.values())


def test_letters_of_one_root_are_one_group_and_one_without_is_its_own():
    first, second = a_letter("order", 1), a_letter("order", 2, event=a_letter("order", 1).event)
    assert ordering(first)["MessageGroupId"] == ordering(second)["MessageGroupId"] == "r-1"
    alone = [ordering(a_letter("order", n, event=None))["MessageGroupId"] for n in (1, 2)]
    assert alone == ["order-1", "order-2"]


def test_each_putting_of_a_letter_is_a_message_of_its_own():
    letter = a_letter("order")
    first, second = (ordering(letter)["MessageDeduplicationId"] for _ in range(2))
    assert first != second


def test_bytes_that_are_no_letter_are_a_group_of_their_own():
    raw = RawLetter(domain="order", raw=b"x", content_type="a")
    assert ordering(raw)["MessageGroupId"] == raw.id


def test_a_content_type_that_no_attribute_carries_is_told():
    assert "content type" in problem_of(RawLetter(domain="order", raw=b"x", content_type="\x00"))
    assert problem_of(RawLetter(domain="order", raw=b"x", content_type="")) == ""
    assert problem_of(a_letter("order")) == ""


def test_only_a_fifo_queue_is_told_of_order():
    letter = a_letter("order")
    plain = entry_of(0, letter, Form.JSON, body="Message", fifo=False).request
    assert plain.keys() == {"Id", "Message", "MessageAttributes"}
    fifo = entry_of(0, letter, Form.JSON, body="MessageBody", fifo=True).request
    assert fifo.keys() - plain.keys() == {
        "MessageBody", "MessageGroupId", "MessageDeduplicationId",
    }  # fmt: skip


@given(st.lists(st.integers(1, 100), max_size=60))
def test_batches_keep_order_and_limits(sizes):
    entries = [BatchEntry(at, "order", size, {}) for at, size in enumerate(sizes)]
    cut = list(batches(entries, 100))
    assert [entry for batch in cut for entry in batch] == entries
    assert all(batch and len(batch) <= BATCH for batch in cut)
    assert all(sum(entry.size for entry in batch) <= 100 for batch in cut)


SNS_NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "m-1",
    "TopicArn": "arn:aws:sns:us-east-1:123456789012:angzarr-dlq-order",
    "Message": '{"a": 1}',
    "MessageAttributes": {"content_type": {"Type": "String", "Value": "application/json"}},
}


def test_a_notification_gives_its_message_and_its_content_type():
    assert unwrapped(Text(json.dumps(SNS_NOTIFICATION))) == Text('{"a": 1}', "application/json")


def test_a_notification_gives_its_transfer_encoding():
    attributes = {"content_transfer_encoding": {"Type": "String", "Value": BASE64}}
    text = json.dumps(SNS_NOTIFICATION | {"MessageAttributes": attributes, "Message": "/w=="})
    assert unwrapped(Text(text)) == Text("/w==", "", BASE64)


def test_what_names_its_own_content_type_is_no_notification():
    for told in (("application/json", ""), ("", BASE64)):
        text = Text(json.dumps(SNS_NOTIFICATION), *told)
        assert unwrapped(text) == text


@pytest.mark.parametrize(
    "changes",
    [{"Type": "SubscriptionConfirmation"}, {"TopicArn": None}, {"Message": {"a": 1}}],
)
def test_what_only_looks_like_one_comes_as_it_is(changes):
    text = json.dumps(SNS_NOTIFICATION | changes)
    assert unwrapped(Text(text)) == Text(text)


@pytest.mark.parametrize(
    "attributes", [None, [], {"content_type": "x"}, {"content_type": {"Value": 7}}, "x"]
)
def test_attributes_that_are_malformed_say_nothing(attributes):
    text = json.dumps(SNS_NOTIFICATION | {"MessageAttributes": attributes})
    assert unwrapped(Text(text)) == Text('{"a": 1}')


@pytest.mark.parametrize("text", ['"TopicArn"' + "[" * 100_000, '{"TopicArn"', '["TopicArn"]', ""])
def test_hostile_text_comes_as_it_is(text):
    assert unwrapped(Text(text)) == Text(text)


@given(st.text())
def test_any_message_survives_its_envelope(message):
    assert unwrapped(Text(json.dumps(SNS_NOTIFICATION | {"Message": message}))).text == message
