"""What a letter was read from is kept where it says just that, and is not written anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests.unit.dead_letters.test_codec import a_letter, letters

from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, decode, encode
from angzarr.dead_letters.letter import MAX_MESSAGE, MAX_STACK, DeadLetter
from angzarr.events.event import Event, Message


def read(**changes: Any) -> DeadLetter:
    """A letter whose JSON has *changes*: a value for each path, None takes it away."""
    document = json.loads(encode(a_letter()).body)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = document
        for key in above:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return decode(json.dumps(document).encode(), JSON_CONTENT_TYPE)


@given(letters())
def test_what_is_kept_is_what_would_be_written(letter: DeadLetter) -> None:
    read = decode(*encode(letter))
    anew = encode(replace(read))
    if read.canonical:
        assert encode(read) == (read.canonical, JSON_CONTENT_TYPE)
        assert json.loads(anew.body) == json.loads(read.canonical)
    assert decode(*anew) == read


def test_a_letter_of_ours_is_not_written_anew() -> None:
    raw = encode(a_letter()).body
    assert encode(decode(raw, JSON_CONTENT_TYPE)).body is raw


def test_nor_is_one_without_an_event() -> None:
    raw = encode(replace(a_letter(), event=None)).body
    assert encode(decode(raw, JSON_CONTENT_TYPE)).body is raw


def test_a_changed_copy_says_what_changed() -> None:
    changed = replace(read(), domain="other")
    assert changed.canonical == b""
    assert decode(*encode(changed)).domain == "other"


def test_another_form_is_written_when_it_is_asked_for() -> None:
    letter = read()
    assert letter.canonical
    assert decode(*encode(letter, Form.BINARY)) == letter
    assert encode(letter, Form.BINARY).content_type != JSON_CONTENT_TYPE


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata__error_stack": "s" * (MAX_STACK + 1)},
        {"metadata__error_message": "m" * (MAX_MESSAGE + 1)},
        {"rejectionReason": "e" * (MAX_MESSAGE + 1)},
        {"metadata__event_id": None},
        {"metadata__event_id": "of another"},
        {"metadata__category": None},
        {"metadata__letter_id": None},
        {"added": 1},
    ],
)
def test_what_others_wrote_differently_is_written_anew(changes: dict[str, Any]) -> None:
    letter = read(**changes)
    assert letter.canonical == b""
    again = decode(*encode(letter))
    assert len(again.error_stack) <= MAX_STACK
    assert len(again.error_message) <= MAX_MESSAGE
    assert len(again.explanation) <= MAX_MESSAGE


PLAIN = Event(id="e-1", type="OrderPlaced", data={}, tenant_id="t")
BODY = Message(body=b"[[{}], {}, {}]", content_type="", content_encoding="", headers={}, queue="q")


@pytest.mark.parametrize("fact", ["id", "type"])
def test_a_fact_that_is_empty_and_written_all_the_same_is_written_anew(fact: str) -> None:
    letter = replace(a_letter(), event=PLAIN, message=BODY)
    document = json.loads(encode(letter).body)
    assert decode(json.dumps(document).encode(), JSON_CONTENT_TYPE).canonical
    document["rejectedEvents"]["pages"][0]["event"]["event"][fact] = ""
    del document["metadata"][f"event_{fact}"]
    document["metadata"]["id"] = f"dlq_{letter.id if fact == 'id' else 'e-1'}"
    assert decode(json.dumps(document).encode(), JSON_CONTENT_TYPE).canonical == b""
