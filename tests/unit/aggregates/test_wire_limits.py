"""What protobuf cannot carry is said as such, and what is no JSON is not read as some."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command
from angzarr.aggregates.wire_form import command_to_wire, cover_of, pack, unpack
from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.events.event import Event
from angzarr.wire.worker_pb2 import JsonMessage


@pytest.mark.parametrize("address", [Address("d", "\udfff"), Address("d", "r", "\ud800")])
def test_half_a_character_in_an_address_is_refused(address):
    with pytest.raises(UnserializableEvent):
        cover_of(address)


@pytest.mark.parametrize("sequence", [-1, 2**32])
def test_a_sequence_beyond_32_bits_is_refused(sequence):
    event = Event(id="i", type="T", data=None, domain="d", root="r", sequence=sequence)
    with pytest.raises(UnserializableEvent, match="sequences from 0"):
        command_to_wire(Command(event=event))


@pytest.mark.parametrize("data", [None, {"$bytes": "AAAA"}])
def test_half_a_character_in_a_type_is_refused(data):
    with pytest.raises(UnserializableEvent):
        pack("\ud800", data)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "1" * 5_000])
def test_what_is_no_json_is_not_read(text):
    packed = AnyMessage()
    packed.Pack(JsonMessage(type="T", data=text))
    with pytest.raises(DecodeError):
        unpack(packed)
