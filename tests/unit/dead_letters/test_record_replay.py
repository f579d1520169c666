from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from angzarr.dead_letters.foreign_replay import RecordRoute
from angzarr.dead_letters.letter import DeadLetter, Distrusted, Refusal
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.signing import Signatures

ROUTES = {
    "d": {"order.placed": RecordRoute("shop.placed", "shop"), "*": RecordRoute("shop.any", "any")}
}
CLEARANCE = Clearance(routes=ROUTES)
RECORD = ForeignRecord(
    broker="kafka",
    place={"topic": "orders", "partition": 0, "offset": 7},
    is_unique=True,
    key=b"customer-1",
    headers=(("h", b"1"), ("h", b"\xff"), ("correlation_id", b"c-1")),
    properties={"tombstone": True},
)


def given(raw: bytes = b"", record: ForeignRecord | None = RECORD, **more: Any) -> RawLetter:
    return RawLetter(domain="d", raw=raw, content_type="a/b", record=record, **more)


def cleared(letter: RawLetter, clearance: Clearance = CLEARANCE) -> DeadLetter:
    found = clearance.record(letter)
    assert isinstance(found, DeadLetter), found
    return found


def argument(letter: DeadLetter) -> Any:
    return json.loads(letter.message.body)[0][0]


def test_a_routed_record_brings_its_task_all_that_carried_it():
    letter = cleared(given())
    assert (letter.message.task, letter.message.queue) == ("shop.any", "any")
    told = argument(letter)
    assert told["kind"] == "record"
    assert told["correlation_id"] == "c-1"
    assert told["pages"] == [{"sequence": None, "created_at": None, "type": "", "value": ""}]
    assert told["record"] == {
        "broker": "kafka",
        "place": {"topic": "orders", "partition": 0, "offset": 7},
        "key": "customer-1",
        "headers": [["h", "1"], ["h", {"$bytes": "/w=="}], ["correlation_id", "c-1"]],
        "properties": {"tombstone": True},
        "content_type": "a/b",
    }
    assert told["letter_id"] == letter.id == given().id


def test_the_type_of_an_event_chooses_the_route_and_json_is_data():
    raw = json.dumps({"specversion": "1.0", "type": "order.placed", "id": "1", "data": {"n": 1}})
    letter = cleared(given(raw.encode()))
    assert letter.message.task == "shop.placed"
    assert argument(letter)["pages"][0]["data"]["data"] == {"n": 1}


def test_the_same_record_gives_the_same_message_and_another_place_another():
    assert cleared(given()).message == cleared(given()).message
    other = given(record=replace(RECORD, place={"topic": "orders", "partition": 0, "offset": 8}))
    assert cleared(other).message.id != cleared(given()).message.id


CELERY = ForeignRecord(
    broker="rabbitmq",
    place={"queue": "angzarr-dlq-d", "exchange": "angzarr.dlq", "routing_key": "angzarr.dlq.d"},
    headers=(
        ("task", "shop.sync"),
        ("id", "t-1"),
        ("lang", "py"),
        ("x-death", [{"queue": "late", "reason": "expired"}, {"queue": "side", "count": 1}]),
        ("x-first-death-reason", "expired"),
    ),
    properties={
        "content_encoding": "utf-8",
        "correlation_id": "t-1",
        "priority": 3,
        "expiration": "9",
        "message_id": 5,
    },
)


def test_a_celery_message_that_rabbitmq_gave_up_is_sent_as_it_was():
    message = cleared(given(b"[[], {}, {}]", CELERY)).message
    assert (message.task, message.id, message.queue) == ("shop.sync", "t-1", "side")
    assert (message.body, message.content_type) == (b"[[], {}, {}]", "a/b")
    assert message.headers == {"task": "shop.sync", "id": "t-1", "lang": "py"}
    assert (message.priority, message.properties) == (3, {"correlation_id": "t-1"})


def test_without_a_route_or_a_record_nothing_is_sent_and_it_is_said_what_helps():
    refused = Clearance().record(given())
    assert isinstance(refused, Refusal)
    assert "dlq.foreign_routes" in refused
    refused = CLEARANCE.record(given(b"x", None))
    assert isinstance(refused, Refusal)
    assert "publish the event again" in refused


@pytest.mark.parametrize("record", [RECORD, CELERY])
def test_where_letters_are_signed_no_record_is_believed(record):
    signed = Signatures(keys={"k": b"secret"}, current="k")
    assert isinstance(
        Clearance(signatures=signed, routes=ROUTES).record(given(b"", record)), Distrusted
    )
    lax = Clearance(signatures=signed, accept_unsigned=True, routes=ROUTES)
    assert isinstance(lax.record(given(b"", record)), DeadLetter)


@pytest.mark.parametrize(
    "headers",
    [
        (("task", "t"), ("id", "i"), ("x-death", [1])),
        (("task", "t"), ("id", "i"), ("x-death", "x")),
        (("task", "t"), ("id", 5), ("angzarr-queue", 5), ("x-death", [{"queue": {}}])),
        (("task", b"\xff"), ("id", b"\xff")),
    ],
)
def test_hostile_headers_of_a_celery_message_break_nothing(headers):
    found = CLEARANCE.record(
        given(b"", replace(CELERY, headers=headers, properties={"priority": "x"}))
    )
    assert isinstance(found, DeadLetter)
    assert isinstance(found.message.queue, str)
