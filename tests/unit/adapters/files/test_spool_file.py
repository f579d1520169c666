from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.files import spool_file
from angzarr.adapters.files.spool_file import letters_among, name_of
from angzarr.adapters.files.whole_files import unfinished
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.queue import RawLetter
from angzarr.errors import DecodeError
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from contracts.dead_letters import a_letter

RAW = spool_file.write(a_letter("order"))
RAW_BYTES = spool_file.write(RawLetter(domain="order", raw=b"no letter", content_type="text/odd"))


def test_a_letter_is_two_lines_of_json_that_people_can_read():
    head, body, end = RAW.split(b"\n")
    assert json.loads(head)["content_type"] == "application/json"
    assert json.loads(body)["metadata"]["handler"] == "shop.sync"
    assert end == b""


def test_a_letter_is_read_as_it_was_written():
    assert spool_file.read(RAW) == a_letter("order")


def test_a_letter_that_json_would_not_hold_whole_is_kept_in_binary():
    foreign = AngzarrDeadLetter.FromString(encode(a_letter("order"), Form.BINARY).body)
    page = foreign.rejected_events.pages.add()
    page.event.type_url = "type.googleapis.com/their.own.Type"
    page.event.value = b"\x0a\x03abc"
    letter = decode(foreign.SerializeToString(), "application/x-protobuf")
    raw = spool_file.write(letter)
    assert raw.count(b"\n") == 2
    assert spool_file.read(raw) == letter


@given(st.text(), st.binary(), st.sampled_from(["", "application/json", "text/odd"]))
def test_bytes_that_are_no_letter_are_read_as_they_were_written(domain, raw, content_type):
    letter = RawLetter(domain=domain, raw=raw, content_type=content_type)
    written = spool_file.write(letter)
    assert written.count(b"\n") == 2
    assert spool_file.read(written) == letter


@given(st.integers(0, len(RAW_BYTES) - 2), st.integers(0, 255))
def test_bytes_of_which_one_changed_are_damaged_or_the_same(at, byte):
    raw = bytearray(RAW_BYTES)
    raw[at] = byte
    try:
        assert spool_file.read(bytes(raw)) == spool_file.read(RAW_BYTES)
    except DecodeError:
        return


def test_what_is_larger_than_any_letter_that_is_read_is_not_written(monkeypatch):
    monkeypatch.setattr(spool_file, "MAX_LETTER_BYTES", 100)
    assert spool_file.write(a_letter("order")) is None


@given(st.integers(0, len(RAW) - 2))
def test_a_file_that_was_cut_is_damaged(length):
    with pytest.raises(DecodeError):
        spool_file.read(RAW[:length])


@given(st.integers(0, len(RAW) - 2), st.integers(0, 255))
def test_a_file_in_which_one_byte_changed_is_damaged_or_holds_the_letter(at, byte):
    raw = bytearray(RAW)
    raw[at] = byte
    try:
        assert spool_file.read(bytes(raw)) == a_letter("order")
    except DecodeError:
        return


@given(st.binary() | st.binary().map(lambda raw: b'{"content_type": "x", "sha256": ""}\n' + raw))
def test_a_file_of_others_is_damaged(raw):
    with pytest.raises(DecodeError):
        spool_file.read(raw)


def test_a_binary_letter_whose_line_is_no_base64_is_damaged():
    for line in (b"1", b'"@"', b"[]", b"\xff"):
        with pytest.raises(DecodeError):
            spool_file.read(b'{"content_type": "application/x-protobuf", "sha256": "0"}\n' + line)


AT = datetime(2026, 11, 22, 8, 32, 56, 123456, tzinfo=UTC)
times = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ids = st.text(max_size=300)
numbers = st.integers(0, 10**8 - 1)


def test_a_name_tells_when_by_whom_how_large_and_which():
    name = name_of(AT, "9f1c03aa", 7, 2113, "2c26b46b")
    assert name == "20261122T083256.123456Z-9f1c03aa-00000007-2113-2c26b46b.letter"


@given(times, numbers, st.integers(0, 10**12), ids)
def test_every_name_is_read_back_and_fits_a_file_system(at, number, size, letter_id):
    name = name_of(at, "00ff00ff", number, size, letter_id)
    (read,) = letters_among([name])
    assert (read.name, read.at, read.size) == (name, at, size)
    assert len(name) < 255
    assert "/" not in name
    assert name.isascii()


@given(st.lists(st.tuples(times, numbers), unique=True))
def test_names_sort_by_time_then_by_number(written):
    names = [name_of(at, "00ff00ff", number, 1, "x") for at, number in written]
    assert [one.name for one in letters_among(names)] == [
        name_of(at, "00ff00ff", number, 1, "x") for at, number in sorted(written)
    ]


@given(st.text())
def test_whatever_else_lies_in_the_folder_is_no_letter(name):
    assert letters_among([name]) == []


def test_a_time_that_is_none_is_no_letter():
    assert letters_among(["20261322T083256.123456Z-9f1c03aa-00000007-2113-x.letter"]) == []


def test_what_is_being_written_is_no_letter_yet():
    assert letters_among([unfinished()]) == []
