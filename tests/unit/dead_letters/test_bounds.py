from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from angzarr.dead_letters.bounds import BODY, LETTER, WIDEST
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.own_json import TASK_MESSAGE_URL
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from angzarr.wire.worker_pb2 import TaskMessage

#: The most that a letter at its bounds may take to be read, in bytes, beside its own.
MOST_MEMORY = 100 * 1024 * 1024
MANY = LETTER.nodes + 1
DEEP = LETTER.depth + 1
TASK = {"@type": TASK_MESSAGE_URL, "task": "t", "args": "[]", "kwargs": "{}", "embed": "{}",
        "headers": "{}"}  # fmt: skip


def lists(count: int) -> str:
    return "[" + "[]," * (count // 2) + "[]]"


def keys(count: int) -> str:
    return "{" + ",".join(f'"{number:x}":0' for number in range(count // 2)) + "}"


def deep(count: int) -> str:
    return "[" * count + "]" * count


def in_letter(**more: Any) -> bytes:
    said = {"rejectionReason": "r", "metadata": {"letter_id": "a"}, "cover": {"domain": "d"}}
    return json.dumps({**said, **more}).encode()


def in_task(**more: Any) -> bytes:
    return in_letter(rejectedEvents={"pages": [{"event": {**TASK, **more}}]})


def spliced(place: Callable[..., bytes], **at: str) -> bytes:
    """Return what *place* makes, with JSON itself where it has a text."""
    [(name, text)] = at.items()
    return place(**{name: "HERE"}).replace(b'"HERE"', text.encode())


def wire(**more: Any) -> bytes:
    return AngzarrDeadLetter(rejection_reason="r", **more).SerializeToString()


def wire_task(**more: Any) -> bytes:
    page = AngzarrDeadLetter(rejection_reason="r")
    page.rejected_events.pages.add().event.Pack(TaskMessage(task="t", **more))
    return page.SerializeToString()


def many_pages() -> bytes:
    letter = AngzarrDeadLetter(rejection_reason="r")
    for _ in range(MANY):
        letter.rejected_events.pages.add()
    return letter.SerializeToString()


PLACES = {
    **{name: in_task(**{name: lists(MANY)}) for name in ("args", "embed")},
    **{name: in_task(**{name: keys(MANY)}) for name in ("kwargs", "headers", "properties")},
    "data": in_task(event={"id": "e", "priority": "", "data": lists(MANY)}),
    "args, escaped": in_task(args=lists(MANY)).replace(b"[]", rb"\u005b]"),
    "all of them": in_task(args=lists(MANY // 2), headers=keys(MANY // 2)),
    "deep args": in_task(args=deep(DEEP)),
    "deep headers": in_task(headers=f'{{"a":{deep(DEEP)}}}'),
    "metadata": spliced(in_letter, metadata=keys(MANY).replace(":0", ':""')),
    "pages": in_letter(rejectedEvents={"pages": [{}] * MANY}),
    "an unknown field": spliced(in_letter, unknown=lists(MANY)),
    "a deep unknown field": spliced(in_letter, unknown=deep(DEEP)),
    "an unknown type": spliced(lambda **x: in_task(**{**x, "@type": "a/b.C"}), x=lists(MANY)),
    "no letter at all": lists(MANY).encode().replace(b"[", b"{", 1),
    "metadata, binary": wire(metadata={f"{number:06x}": "" for number in range(MANY // 2)}),
    "pages, binary": many_pages(),
    "an unknown field, binary": wire() + b"\x98\x06\x01" * MANY,
    "groups, binary": wire() + b"\x9b\x06\x9c\x06" * MANY,
    "config pins, binary": wire_task(event={"config_pins": {f"{n:06x}": "" for n in range(MANY)}}),
    "args, binary": wire_task(args=lists(MANY), kwargs="{}", embed="{}", headers="{}"),
    "headers, binary": wire_task(headers=keys(MANY)),
    "data, binary": wire_task(event={"data": lists(MANY)}),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_holds_too_much_is_refused_wherever_it_stands(place: str) -> None:
    deep = place.startswith(("deep", "a deep"))
    most, setting = (LETTER.depth, "most_levels") if deep else (LETTER.nodes, "most_values")
    said = rf"holds more than the {most} \w+ that are read: .* raise dlq\.{setting}$"
    with pytest.raises(DecodeError, match=said):
        decode(PLACES[place])


AT_BOUND = {
    "args": lambda: in_task(args=lists(LETTER.nodes - 20)),
    "headers": lambda: in_task(headers=keys(LETTER.nodes - 20)),
    "an unknown field": lambda: spliced(in_letter, unknown=lists(LETTER.nodes - 40)),
    "pages": lambda: in_letter(rejectedEvents={"pages": [{}] * (LETTER.nodes // 2 - 20)}),
    "metadata": lambda: spliced(
        in_letter, metadata=keys(LETTER.nodes // 2 - 20).replace(":0", ':""')
    ),
}


@pytest.mark.parametrize("place", AT_BOUND)
def test_what_is_read_takes_a_bounded_memory(place: str) -> None:
    raw = AT_BOUND[place]()
    tracemalloc.start()
    try:
        decode(raw)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def letter_of(data: Any) -> DeadLetter:
    message = Message(
        body=json.dumps([[data], {}, {}]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={"id": "t-1", "task": "t"},
        queue="q",
    )
    return DeadLetter(
        id="l",
        domain="d",
        handler="h",
        reason=Reason.EXHAUSTED,
        explanation="e",
        message=message,
        event=Event(id="e-1", type="t", data=data, domain="d"),
        sent_to_dlq_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(
    "data",
    [[0] * (BODY.nodes + 1), [0] * (LETTER.nodes * 2), json.loads(deep(LETTER.depth + 1))],
    ids=["just above", "far above", "deep"],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_letter_that_was_written_can_be_read_however_much_its_body_holds(
    form: Form,
    data: Any,
    apart: bool,  # noqa: FBT001 - parametrised
) -> None:
    letter = letter_of(data)
    if apart:  # what the handler was given is not what the body says
        letter = replace(letter, event=replace(letter.event, data={"else": data}))
    read = decode(*encode(letter, form))
    assert read.message == letter.message
    assert replace(read.event, data=None) == replace(letter.event, data=None)


@pytest.mark.parametrize("form", Form)
def test_a_body_within_its_bound_stays_json_and_gives_its_data(form: Form) -> None:
    letter = letter_of([0] * (BODY.nodes - 20))
    assert decode(*encode(letter, form)) == letter


def test_json_in_another_encoding_is_none() -> None:
    """In UTF-16 a letter may have the byte of a quote, behind which values would not be counted."""
    raw = json.dumps({"rejectionReason": "∀" * 9}, ensure_ascii=False)
    with pytest.raises(DecodeError, match="not JSON"):
        decode(raw.encode("utf-16"), "application/json")
    assert decode(raw.encode("utf-8-sig"), "application/json").explanation == "∀" * 9


def test_any_values_are_not_read_into() -> None:
    """What lies in an Any of others is one value to us, whatever it is to them."""
    letter = AngzarrDeadLetter(rejection_reason="r")
    letter.rejected_events.pages.add().event.CopyFrom(
        AnyMessage(type_url="a/b.C", value=b"\x0a\x00" * MANY * 3)
    )
    assert decode(letter.SerializeToString()).explanation == "r"


WIDER = LETTER._replace(nodes=4 * LETTER.nodes, depth=LETTER.depth + 20)


@pytest.mark.parametrize(
    "place", ["args", "deep args", "an unknown field", "pages, binary", "headers, binary"]
)
def test_what_is_beyond_the_bounds_is_read_within_wider_ones(place: str) -> None:
    letter = decode(PLACES[place], "", WIDER)
    assert decode(*encode(letter), WIDEST) == letter, "as the ledger keeps it"
