"""Samples of every message, assembled without our code, are read, compared and written back."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf import json_format, wrappers_pb2  # noqa: F401 - samples hold a StringValue
from google.protobuf.message import Message as Wire

from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.foreign import adopt_later_generation, adopt_later_generation_json
from angzarr.dead_letters.letter import Reason
from angzarr.payloads.store import StorageKind
from angzarr.wire import book_pb2, dead_letter_pb2, identity_pb2, rejection_pb2, worker_pb2
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

SAMPLES = Path(__file__).with_name("wire_samples")
FIRST, LATER = "angzarr", "io.angzarr.v1"
FILES = (identity_pb2, book_pb2, dead_letter_pb2, rejection_pb2, worker_pb2)
MESSAGES = {
    name: getattr(file, name) for file in FILES for name in file.DESCRIPTOR.message_types_by_name
}
NAMES = sorted(path.stem for path in (SAMPLES / FIRST).glob("*.binpb"))
LETTERS = [name for name in NAMES if name.startswith("AngzarrDeadLetter")]
WHEN = datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)


def binary(generation: str, name: str) -> bytes:
    return (SAMPLES / generation / f"{name}.binpb").read_bytes()


def text(generation: str, name: str) -> bytes:
    return (SAMPLES / generation / f"{name}.json").read_bytes()


def content_type(generation: str, form: Form) -> str:
    media = "application/json" if form is Form.JSON else "application/x-protobuf"
    return f'{media}; messageType="{generation}.AngzarrDeadLetter"'


def message(name: str) -> Wire:
    return MESSAGES[name.partition("-")[0].removeprefix("worker.")]()


def read(name: str) -> Wire:
    wire = message(name)
    wire.ParseFromString(binary(FIRST, name))
    return wire


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_says_field_by_field_what_its_json_says(name):
    wire = read(name)
    said = json.loads(text(FIRST, name))
    assert json_format.MessageToDict(wire) == said
    assert json_format.ParseDict(said, message(name)) == wire


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_written_back_byte_for_byte(name):
    assert read(name).SerializeToString(deterministic=True) == binary(FIRST, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_of_the_later_generation_is_mapped_to_the_first(name):
    wire = message(name)
    wire.ParseFromString(binary(LATER, name))
    adopt_later_generation(wire)
    assert wire.SerializeToString(deterministic=True) == binary(FIRST, name)
    said = json.loads(text(LATER, name))
    adopt_later_generation_json(said, wire.DESCRIPTOR)
    assert json_format.ParseDict(said, message(name)) == wire


def test_the_generations_differ_where_a_merge_strategy_is_told_and_nowhere_else():
    differing = {name for name in NAMES if binary(FIRST, name) != binary(LATER, name)}
    assert differing == {
        "AngzarrDeadLetter-command", "CommandBook", "CommandPage", "CommandPage-external",
        "RejectionNotification", "RevokeEventCommand", "SagaCompensationFailed",
        "SequenceMismatchDetails",
    }  # fmt: skip


def test_every_field_of_every_message_is_in_a_sample():
    missing = {
        f"{name}.{field.name}"
        for name, kind in MESSAGES.items()
        for field in kind.DESCRIPTOR.fields
    }
    for name in NAMES:
        wire = read(name)
        missing -= {f"{wire.DESCRIPTOR.name}.{field.name}" for field, _ in wire.ListFields()}
    assert missing == set()


@pytest.mark.parametrize("generation", [FIRST, LATER])
def test_the_samples_are_those_that_were_assembled(generation):
    assemble = _assemble()
    made = assemble.samples(generation)
    assert sorted(made) == NAMES
    for name, sample in made.items():
        files = assemble.files(sample)
        assert files[".binpb"] == binary(generation, name)
        assert files[".json"] == text(generation, name)


def _assemble() -> ModuleType:
    sys.path.insert(0, str(SAMPLES))
    try:
        return importlib.import_module("assemble")
    finally:
        sys.path.remove(str(SAMPLES))


# -- through the codec ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("generation", [FIRST, LATER])
@pytest.mark.parametrize("name", LETTERS)
def test_a_letter_of_either_generation_and_form_is_written_as_the_first(name, generation, form):
    raw = (text if form is Form.JSON else binary)(generation, name)
    letter = decode(raw, content_type(generation, form))
    written = AngzarrDeadLetter.FromString(encode(letter, Form.BINARY).body)
    expected = read(name)
    assert expected.metadata.items() <= written.metadata.items()
    for wire in (expected, written):
        wire.ClearField("metadata")
    assert written.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )
    assert decode(*encode(letter, form)) == letter


def letter_of(name: str):
    return decode(binary(FIRST, name), content_type(FIRST, Form.BINARY))


def test_the_fields_of_a_rejected_command_are_read():
    letter = letter_of("AngzarrDeadLetter-command")
    assert (letter.domain, letter.component, letter.component_type) == (
        "order",
        "cart",
        "aggregate",
    )
    assert (letter.reason, letter.error_type) == (
        Reason.SEQUENCE_MISMATCH,
        "SequenceMismatch",
    )
    assert letter.error_message == "expected sequence 3, the aggregate is at 5"
    assert (letter.explanation, letter.sent_to_dlq_at) == ("sequence mismatch", WHEN)
    assert letter.metadata == {"original_queue": "orders", "theirs": "kept"}
    assert letter.message.body == binary(FIRST, "CommandBook")


def test_the_fields_of_failed_events_are_read():
    letter = letter_of("AngzarrDeadLetter-events")
    assert (letter.reason, letter.error_message) == (Reason.EXHAUSTED, "no answer")
    assert (letter.attempts, letter.category) == (5, "transient")
    assert letter.message.body == binary(FIRST, "EventBook")


def test_the_fields_of_a_payload_that_was_not_fetched_are_read():
    letter = letter_of("AngzarrDeadLetter-payload")
    assert (letter.reason, letter.error_type) == (Reason.UNDELIVERABLE, "PayloadRetrievalFailed")
    assert letter.error_message == "gone"


def test_the_fields_of_a_workers_letter_are_read():
    letter = letter_of("AngzarrDeadLetter-task")
    assert (letter.id, letter.handler, letter.attempts) == ("l-1", "shop.sync", 5)
    sent, event = letter.message, letter.event
    assert sent.body == b'[[{"total": 3}], {}, {"callbacks": null}]'
    assert sent.headers == {"task": "shop.sync", "id": "t-1", "raw": b"\xff"}
    assert (sent.queue, sent.exchange, sent.routing_key) == ("orders", "shop", "orders.eu")
    assert (sent.priority, sent.properties) == (5, {"correlation_id": "t-1"})
    assert event is not None
    assert (event.id, event.type, event.data) == ("e-1", "order.placed", {"total": 3})
    assert (event.sequence, event.tenant_id, event.occurred_at) == (2**64 - 1, "acme", WHEN)
    assert event.config_pins == {"prices": "7"}


def test_the_payload_of_an_offloaded_letter_is_read():
    payload = letter_of("AngzarrDeadLetter-offloaded").payload
    assert payload is not None
    assert (payload.kind, payload.uri) == (StorageKind.FILESYSTEM, "s3://letters/dlq/ab/cd")
    assert (payload.size, payload.stored_at) == (2**53 + 1, WHEN)
    assert payload.sha256 == bytes(range(224, 256)).hex()


def test_a_packed_payload_is_read_with_what_it_unpacks_to():
    payload = letter_of("AngzarrDeadLetter-packed").payload
    assert payload is not None
    assert (payload.encoding, payload.unpacked_size) == ("zstd", 2**53 + 3)
    assert payload.unpacked_sha256 == bytes(range(32)).hex()


def test_a_letter_that_was_read_carries_what_is_added_to_it():
    for name in LETTERS:
        letter = replace(letter_of(name), replay=3, worker="w1")
        assert decode(*encode(letter)) == letter
