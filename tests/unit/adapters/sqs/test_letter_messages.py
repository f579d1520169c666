"""Letters and bytes of any kind become texts that SQS takes, and are read as they were."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.adapters.sqs.letter_messages import (
    BASE64,
    Text,
    as_bytes,
    as_text,
    is_legal,
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
