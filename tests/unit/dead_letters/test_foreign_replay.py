"""Letters that other languages wrote become messages of the tasks that take them."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st

from angzarr.app.angzarr import Angzarr
from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    PROTOBUF_CONTENT_TYPE,
    Form,
    decode,
    encode,
)
from angzarr.dead_letters.foreign_replay import RecordRoute, read_book, routed
from angzarr.dead_letters.letter import Refusal
from angzarr.delivery.delivery import read
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

ROOT = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
WHEN = datetime(2026, 5, 4, 3, 2, 1, 250_000, tzinfo=UTC)
TAKER = RecordRoute("bank.take", "bank")
ROUTES = {"bank": {"bank.v1.MoneyLost": TAKER}}


def wire(kind="events", types=("bank.v1.MoneyLost",), **cover) -> AngzarrDeadLetter:
    letter = AngzarrDeadLetter(rejection_reason="no money", metadata={"letter_id": "theirs-7"})
    letter.cover.domain = cover.get("domain", "bank")
    letter.cover.root.value = cover.get("root", ROOT.bytes)
    letter.cover.correlation_id = "corr-1"
    letter.cover.edition.name = "blue"
    book = letter.rejected_events if kind == "events" else letter.rejected_command
    for number, name in enumerate(types):
        page = book.pages.add()
        page.header.sequence = 40 + number
        payload = AnyMessage(type_url=f"type.googleapis.com/{name}", value=b"\x08\x07")
        if kind == "events":
            page.created_at.FromDatetime(WHEN)
            page.event.CopyFrom(payload)
        else:
            page.command.CopyFrom(payload)
    return letter


def binary(letter):
    return decode(letter.SerializeToString(), PROTOBUF_CONTENT_TYPE)


def in_json(**changes):
    event = {"@type": "x/bank.v1.MoneyLost", "amount": "7.50", "nested": {"a": [1]}}
    page = {"header": {"sequence": 40}, "createdAt": "2026-05-04T03:02:01.250Z", "event": event}
    letter = {
        "cover": {
            "domain": "bank",
            "root": {"value": base64.b64encode(ROOT.bytes).decode()},
            "correlationId": "corr-1",
            "edition": {"name": "blue"},
        },
        "rejectedEvents": {"pages": [page]},
        "metadata": {"letter_id": "theirs-7"},
        **changes,
    }
    return decode(json.dumps(letter).encode(), JSON_CONTENT_TYPE)


def argument(letter):
    ((found,), kwargs, _) = json.loads(letter.message.body)
    assert kwargs == {}
    assert letter.event.data == found
    return found


COMMON = {
    "letter_id": "theirs-7",
    "domain": "bank",
    "root": str(ROOT),
    "correlation_id": "corr-1",
    "edition": "blue",
    "kind": "events",
}
PAGE = {
    "sequence": 40,
    "created_at": "2026-05-04T03:02:01.250000+00:00",
    "type": "bank.v1.MoneyLost",
}


def test_a_binary_letter_gives_its_bytes():
    assert argument(routed(binary(wire()), ROUTES)) == {
        **COMMON, "pages": [{**PAGE, "value": "CAc="}],
    }  # fmt: skip


def test_a_letter_in_json_gives_its_object():
    assert argument(routed(in_json(), ROUTES)) == {
        **COMMON, "pages": [{**PAGE, "data": {"amount": "7.50", "nested": {"a": [1]}}}],
    }  # fmt: skip


def test_a_command_says_that_it_is_one():
    found = argument(routed(binary(wire("command")), ROUTES))
    assert found == {
        **COMMON, "kind": "command", "pages": [{**PAGE, "created_at": None, "value": "CAc="}],
    }  # fmt: skip


def test_what_a_letter_does_not_say_is_null():
    bare = AngzarrDeadLetter()
    bare.rejected_events.pages.add().event.type_url = "a/b.C"
    letter = replace(binary(bare), domain="bank")
    found = argument(routed(letter, {"bank": {"*": TAKER}}))
    assert (found["root"], found["correlation_id"], found["edition"]) == (None, None, None)
    page = {"sequence": None, "created_at": None, "type": "b.C", "value": ""}
    assert found["pages"] == [page]


def test_the_message_is_what_our_own_publisher_would_send():
    app = Angzarr("bank", broker="memory://", dlq={"backend": "channel"})
    letter = routed(binary(wire()), ROUTES)
    headers, task_id = letter.message.headers, letter.message.id
    written = app.amqp.as_task_v2(task_id, "bank.take", args=[letter.event.data], kwargs={})
    ours = {name: headers[name] for name in written.headers if name not in ("origin", "argsrepr")}
    assert ours == {name: written.headers[name] for name in ours}
    assert headers.keys() - written.headers.keys() == {
        *names.to_headers(letter.event), names.QUEUE,
    }  # fmt: skip
    assert letter.message.properties == written.properties
    assert json.loads(letter.message.body) == json.loads(json.dumps(written.body))
    assert (letter.message.queue, headers[names.QUEUE]) == ("bank", "bank")
    app.close()


def test_a_worker_reads_the_event_that_the_letter_holds():
    letter = routed(binary(wire()), ROUTES)
    args, kwargs, _ = json.loads(letter.message.body)
    delivery = read(letter.message, args=args, kwargs=kwargs, token="t", owner="o")
    assert delivery.handler == "bank.take"
    assert delivery.event == letter.event == Event(
        id="theirs-7", type="bank.v1.MoneyLost", data=args[0], domain="bank", root=str(ROOT),
        edition="blue", sequence=40, correlation_id="corr-1", occurred_at=WHEN,
    )  # fmt: skip


@pytest.mark.parametrize("letter", [binary(wire()), in_json()], ids=["binary", "json"])
def test_the_same_letter_and_route_give_the_same_message(letter):
    again = decode(*encode(letter, Form.BINARY))
    assert routed(again, ROUTES).message == routed(letter, ROUTES).message
    other = routed(letter, {"bank": {"*": RecordRoute("bank.other", "bank")}})
    assert other.message.id != routed(letter, ROUTES).message.id
    assert other.id == letter.id == "theirs-7"


def test_a_type_is_preferred_to_the_star():
    routes = {"bank": {"*": RecordRoute("any", "q"), "bank.v1.MoneyLost": TAKER}}
    assert routed(binary(wire()), routes).message.task == "bank.take"
    assert routed(binary(wire(types=["bank.v1.Else"])), routes).message.task == "any"


@pytest.mark.parametrize("routes", [{}, {"shop": {"*": TAKER}}, {"bank": {"MoneyLost": TAKER}}])
def test_without_a_route_the_one_to_configure_is_named(routes):
    found = routed(binary(wire()), routes)
    assert isinstance(found, Refusal)
    assert '{"bank": {"bank.v1.MoneyLost": {"task": "…", "queue": "…"}}}' in found


def test_pages_of_several_types_need_one_route():
    letter = binary(wire(types=["bank.v1.A", "bank.v1.B"]))
    apart = {"bank": {"bank.v1.A": TAKER, "bank.v1.B": RecordRoute("other", "bank")}}
    assert "different routes in dlq.foreign_routes: bank.v1.A, bank.v1.B" in routed(letter, apart)
    assert "'bank.v1.B'" in routed(letter, {"bank": {"bank.v1.A": TAKER}})
    found = argument(routed(letter, {"bank": {"*": TAKER}}))
    assert [(page["type"], page["sequence"]) for page in found["pages"]] == [
        ("bank.v1.A", 40), ("bank.v1.B", 41),
    ]  # fmt: skip
    assert routed(letter, {"bank": {"*": TAKER}}).event.sequence is None


def test_a_payload_that_is_elsewhere_is_passed_on_as_its_reference():
    letter = wire()
    letter.rejected_events.pages[0].external.uri = "gs://bucket/7"
    found = argument(routed(binary(letter), {"bank": {"*": TAKER}}))
    assert found["pages"][0] == {**PAGE, "type": "", "external": {"uri": "gs://bucket/7"}}


@pytest.mark.parametrize(
    "letter",
    [
        binary(AngzarrDeadLetter(rejection_reason="nothing")),
        in_json(rejectedEvents={}),
        in_json(rejectedEvents={}, strange=1),
        in_json(rejectedEvents=None, rejectionReason="no money", strange=1),
    ],
)
def test_a_letter_that_holds_nothing_is_not_sent(letter):
    assert "holds no event and no command" in routed(letter, ROUTES)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda raw: b"{" + raw))
def test_no_envelope_breaks_the_reader(envelope):
    read_book(envelope)


@pytest.mark.parametrize(
    "pages",
    [
        [1],
        [{}],
        [{"event": 5}],
        [{"event": {"@type": []}}],
        {"a": 1},
        [None],
        "x",
        [{"event": None}],
    ],
)
def test_odd_json_is_a_sentence_or_a_message(pages):
    raw = json.dumps({"rejectedEvents": {"pages": pages}, "strange": 1}).encode()
    read_book(raw)
