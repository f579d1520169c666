"""What the ledger's rows keep of a letter: all of it, known to us or not."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.contracts.ledger import letter_of
from tests.hand_clock import START

from angzarr.adapters.sql.ledger.tables import failure_from, letter_row
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.replay.replay import replay_message
from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    PROTOBUF_CONTENT_TYPE,
    Form,
    decode,
    encode,
    read_receipt,
)
from angzarr.dead_letters.letter import UNDATED
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from memory_payloads import MemoryPayloadStore

FORMS = pytest.mark.parametrize("form", list(Form))
#: Field 127 = 42: of a release that we do not know.
NOVEL = b"\xf8\x07\x2a"


def stored(failure):
    """Return *failure* as it comes out of its row."""
    return failure_from(SimpleNamespace(**letter_row("entry", failure)))


def novel_fields(wire):
    return [(field.field_number, field.data) for field in UnknownFieldSet(wire)]


@FORMS
def test_fields_nobody_here_knows_go_from_the_queue_through_the_ledger_and_out_again(form):
    wire = AngzarrDeadLetter.FromString(encode(letter_of(), Form.BINARY).body + NOVEL)
    wire.cover.MergeFromString(NOVEL)
    wire.rejected_events.pages[0].MergeFromString(NOVEL)
    wire.event_processing_failed.MergeFromString(NOVEL)
    letter = stored(decode(wire.SerializeToString(), PROTOBUF_CONTENT_TYPE))
    again = AngzarrDeadLetter.FromString(encode(replace(letter, worker="w9"), form).body)
    for message in (again, again.cover, again.rejected_events.pages[0]):
        assert novel_fields(message) == [(127, 42)]
    assert novel_fields(again.event_processing_failed) == [(127, 42)]
    assert again.metadata["worker"] == "w9"


@FORMS
def test_json_nobody_here_knows_goes_from_the_queue_through_the_ledger_and_out_again(form):
    data = json.loads(encode(letter_of()).body)
    data["novel"] = {"deep": [1, "zwei"]}
    data["cover"]["novel"] = 1
    data["rejectedEvents"]["pages"][0]["event"]["novel"] = True
    letter = stored(decode(json.dumps(data).encode(), JSON_CONTENT_TYPE))
    again = json.loads(encode(replace(letter, worker="w9"), form).body)
    assert again["novel"] == data["novel"]
    assert again["cover"] == data["cover"]
    assert again["rejectedEvents"] == data["rejectedEvents"]
    assert again["metadata"]["worker"] == "w9"


def test_the_message_of_a_letter_with_such_fields_is_the_one_that_was_sent():
    raw = encode(letter_of(), Form.BINARY).body + NOVEL
    letter = stored(decode(raw, PROTOBUF_CONTENT_TYPE))
    assert replay_message(letter, 1) == replay_message(letter_of(), 1)


def test_where_its_body_is_goes_with_a_letter():
    letter = without_body(letter_of(), MemoryPayloadStore().put(letter_of().message.body))
    assert stored(letter) == letter


@FORMS
def test_the_day_on_which_a_letter_of_others_came_is_kept_with_it(form):
    wire = AngzarrDeadLetter(rejection_reason="theirs")
    wire.rejected_command.pages.add().header.sequence = 1
    letter = decode(wire.SerializeToString(), PROTOBUF_CONTENT_TYPE)
    assert letter.sent_to_dlq_at == UNDATED
    dated = stored(replace(letter, sent_to_dlq_at=START))
    assert dated.sent_to_dlq_at == decode(*encode(dated, form)).sent_to_dlq_at == START
    assert not AngzarrDeadLetter.FromString(encode(dated, Form.BINARY).body).HasField("occurred_at")


def test_what_an_older_release_took_for_an_empty_letter_is_shown_with_its_bytes():
    row = letter_row("e1", letter_of()) | {
        "body": b'{"order_id": "o-777", "metadata": {"id": "l1"}, "rejectionReason": ""}'
    }
    failure = failure_from(SimpleNamespace(**row))
    assert isinstance(failure, Unreadable)
    assert failure.raw == row["body"]
    assert "it is not a letter of angzarr" in failure.problem


# -- letters nested deeper than parsers go ------------------------------------------------------


def nested_json(depth):
    return b'{"rejectionReason": "r", "novel": ' + b'{"a": [' * depth + b"1" + b"]}" * depth + b"}"


def nested_binary(depth):
    """Unknown groups in each other: 1000 is their field, 3 begins one and 4 ends it."""
    return b"\x1a\x01r" + b"\xc3\x3e" * depth + b"\xc4\x3e" * depth


def nested_task(depth):
    wire = AngzarrDeadLetter.FromString(encode(letter_of(), Form.BINARY).body)
    task = wire.rejected_events.pages[0].event
    headers = b'{"a": ' * depth + b"1" + b"}" * depth
    length = len(headers)
    size = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    task.value += b"\x42" + size + headers  # the headers, once more: the last one counts
    return wire.SerializeToString()


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (nested_json(100_000), JSON_CONTENT_TYPE),
        (nested_json(100_000), ""),
        (nested_binary(200), PROTOBUF_CONTENT_TYPE),
        (nested_binary(1_000_000), ""),
        (nested_task(20_000), PROTOBUF_CONTENT_TYPE),
    ],
    ids=["json", "json untold", "binary", "binary untold", "headers"],
)
def test_a_letter_nested_deeper_than_parsers_go_is_kept_as_unreadable_with_its_bytes(
    raw, content_type
):
    receipt = read_receipt("order", raw, content_type, handle=1)
    assert receipt.letter is None
    assert receipt.problem.startswith("the letter ")
    assert (receipt.raw, receipt.content_type) == (raw, content_type)
    failure = Unreadable(
        domain="order", raw=receipt.raw, content_type=receipt.content_type,
        problem=receipt.problem, received_at=START,
    )  # fmt: skip
    assert stored(failure) == failure


@pytest.mark.parametrize("depth", [10, 90, 150, 300, 450, 1_000, 5_000])
def test_at_any_depth_a_letter_is_whole_or_unreadable(depth):
    for raw, content_type in (
        (nested_json(depth), JSON_CONTENT_TYPE),
        (nested_binary(depth), PROTOBUF_CONTENT_TYPE),
    ):
        letter = read_receipt("order", raw, content_type, handle=1).letter
        assert letter is not None or depth > 10
        if letter is not None:
            assert stored(letter) == letter
            written = encode(letter).body
            assert (b'{"a": [' * depth if raw.startswith(b"{") else raw[3:]) in written
