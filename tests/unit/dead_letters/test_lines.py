from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dead_letters import a_letter

from angzarr.dead_letters import codec
from angzarr.dead_letters import codec as lines
from angzarr.dead_letters.codec import (
    MAX_LINE,
    PROTOBUF_CONTENT_TYPE,
    Form,
    encode,
    from_line,
    read_receipt,
    to_line,
)
from angzarr.dead_letters.queue import Receipt
from angzarr.errors import DecodeError
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter


def receipt_of(letter, form=Form.JSON):
    return read_receipt(letter.domain, *encode(letter, form), None)


@pytest.mark.parametrize("form", list(Form))
def test_a_letter_comes_back_whole_whatever_form_it_came_in(form):
    letter = a_letter("order", explanation='odd \n "text" \x00 \u2028 ö')
    line = to_line(receipt_of(letter, form))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert from_line(line).letter == letter


def test_a_letter_stands_in_its_line_as_json_that_people_can_read():
    held = json.loads(to_line(receipt_of(a_letter("order"))))
    assert (held["domain"], held["content_type"]) == ("order", "application/json")
    assert held["letter"]["metadata"]["letter_id"] == "order-0"


def test_what_json_would_lose_travels_as_its_bytes():
    wire = AngzarrDeadLetter.FromString(b"\x1a\x01r\xa2\x06\x03odd")  # a field of others
    raw = wire.SerializeToString()
    receipt = read_receipt("order", raw, PROTOBUF_CONTENT_TYPE, None)
    assert receipt.letter is not None
    held = json.loads(to_line(receipt))
    assert "letter" not in held
    assert from_line(to_line(receipt)).letter == receipt.letter


@given(raw=st.binary(), domain=st.text(), content_type=st.text())
def test_any_bytes_of_any_domain_come_back_as_they_were(raw, domain, content_type):
    receipt = read_receipt(domain, raw, content_type, None)
    if receipt.letter is not None:
        return
    back = from_line(to_line(receipt))
    assert (back.domain, back.raw, back.content_type) == (domain, raw, content_type)
    assert back.problem == receipt.problem
    assert json.loads(to_line(receipt))["problem"] == receipt.problem


def test_no_line_is_longer_than_what_is_read(monkeypatch):
    monkeypatch.setattr(codec, "MAX_LETTER_BYTES", 4_000)
    monkeypatch.setattr(lines, "MAX_LETTER_BYTES", 4_000)
    letter = a_letter("order", metadata={"many": "\x00" * 2_000})  # 6 characters each in JSON
    receipt = receipt_of(letter, Form.BINARY)
    assert receipt.letter == letter
    line = to_line(receipt)
    assert len(line) < len(encode(letter).body) < MAX_LINE
    assert from_line(line).letter == letter


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"domain": "order", "content_ty', "not JSON"),
        (b"[" * 100_000, "more than the 200 levels"),
        (b"[]", "not a letter"),
        (b'{"domain": "order"}', "not a letter"),
        (b'{"domain": 1, "content_type": "", "raw": ""}', "domain is not a string"),
        (b'{"domain": "order", "content_type": null, "raw": ""}', "content_type is not a string"),
        (b'{"domain": "order", "content_type": "", "raw": "*"}', "not base64"),
        (b'{"domain": "order", "content_type": "", "raw": "\xc3\xb6"}', "not base64"),
        (b'{"domain": "order", "content_type": "", "letter": 1}', "raw is not a string"),
        (b'{"domain": "order", "content_type": "", "letter": {"cover": 3}}', "malformed"),
        (b'{"domain": "o", "content_type": "application/x", "letter": {}}', "neither protobuf"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line, said):
    with pytest.raises(DecodeError, match=said):
        from_line(line)


@given(line=st.binary())
def test_hostile_lines_raise_nothing_else(line):
    with contextlib.suppress(DecodeError):
        assert isinstance(from_line(line), Receipt)


@given(
    held=st.dictionaries(
        st.sampled_from(["domain", "content_type", "letter", "raw", "problem"]),
        st.text() | st.none() | st.integers() | st.dictionaries(st.text(), st.text()),
    )
)
def test_hostile_objects_raise_nothing_else(held):
    with contextlib.suppress(DecodeError):
        assert isinstance(from_line(json.dumps(held).encode()), Receipt)


def test_a_domain_that_is_no_text_elsewhere_is_kept():
    receipt = replace(receipt_of(a_letter("order")), domain="\udcff")
    assert from_line(to_line(receipt)).domain == "\udcff"
