"""What a hostile message says or holds is told before anything is made of it."""

from __future__ import annotations

import base64
import bz2
import json
import tracemalloc
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu import compression
from kombu.transport.virtual import Message as VirtualMessage
from kombu.utils.json import loads

from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.worker.message_limits import (
    as_a_whole,
    bound_decompression,
    check_fields,
    take_in,
)
from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.redis.damaged import read
from angzarr.dead_letters import codec
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.delivery.delivery import position_of
from angzarr.delivery.schedule import row_of
from angzarr.errors import DecodeError
from angzarr.events.received import HEADER_LEVELS, MAX_PRIORITY, DamagedEnvelope
from angzarr.runtime.json_bounds import Bounds
from angzarr.settings.delivery import MessageSettings

BOUNDS = MessageSettings().bounds
GOOD = b'[["x"], {}, {}]'

#: What JSON can hold, the dearest to read of each kind among it.
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(),
    st.sampled_from([10**400, -1, 255, 256, 2**31, "high", "9" * 5000, "5", 1.5, 3.0, "bz2"]),
    st.sampled_from(
        [{"__type__": "decimal", "__value__": "1e1000000"},
         {"__type__": "decimal", "__value__": "x"},
         {"__type__": "datetime", "__value__": "0001-01-01"},
         {"__type__": [], "__value__": 1},
         {"__type__": "uuid", "__value__": {"bytes": 5}}, {"__type__": "bytes", "__value__": "x"}]
    ),
)  # fmt: skip
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PROPERTIES = (
    "correlation_id", "reply_to", "delivery_mode", "priority", "body_encoding", "delivery_tag",
    "expiration", "message_id", "type", "user_id", "app_id", "cluster_id", "timestamp",
    "angzarr_unreadable",
)  # fmt: skip
PLACES = ("exchange", "routing_key", "redelivered", "sqs_message")
HEADERS = (
    "task", "id", "retries", "eta", "expires", "timelimit", "compression", "angzarr-attempt",
    "angzarr-hop", "angzarr-sequence", "angzarr-event-id", "angzarr-domain", "angzarr-queue",
    "X-DLQ-Attempts", "angzarr-rest", "angzarr-waited-for", "angzarr-priority",
    "angzarr-config-pins", "x-death",
)  # fmt: skip


def some(names):
    """Mappings that say a few odd things of *names*."""
    return st.dictionaries(st.sampled_from(names), ANY_JSON, max_size=3)


def envelope(body=GOOD, headers=None, properties=None, place=None, **fields):
    usual = {
        "correlation_id": "c", "reply_to": "", "delivery_mode": 2, "priority": 0,
        "body_encoding": "base64", "delivery_tag": "tag",
        "delivery_info": {"exchange": "", "routing_key": "celery", **(place or {})},
    }  # fmt: skip
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "t", "id": "1", **(headers or {})},
        "properties": {**usual, **(properties or {})},
        **fields,
    }


ENVELOPES = st.builds(
    envelope,
    st.sampled_from([GOOD, b"", b"null", b"\xff", b'[[{"a": [1]}], {}, {}]']),
    some(HEADERS), some(PROPERTIES), some(PLACES),
) | st.builds(
    lambda good, odd: {**good, **odd},
    st.builds(envelope),
    some(("body", "content-type", "content-encoding", "headers", "properties")),
)  # fmt: skip

CHANNEL = SimpleNamespace(
    decode_body=lambda body, encoding=None: base64.b64decode(body) if encoding else body
)


def message(given):
    """The message that kombu makes of the envelope *given*."""
    return VirtualMessage(given, channel=CHANNEL)


def envelope_of(found):
    return Envelope(
        "t", "o", found.body, found.content_type or "", found.content_encoding or "",
        found.headers, found.properties, found.delivery_info,
    )  # fmt: skip


def letter_of(found):
    return DeadLetter(
        id="a", domain="order", handler=found.task, reason=Reason.UNDELIVERABLE, message=found,
        explanation="odd", sent_to_dlq_at=datetime(2026, 3, 1, tzinfo=UTC),
    )  # fmt: skip


# -- what is said of a message ------------------------------------------------------------------


@settings(max_examples=400)
@given(ENVELOPES)
def test_whatever_an_envelope_says_its_letter_can_be_written_and_read(given):
    """In both forms, and through a queue; what cannot be is told before, and nothing else is."""
    try:
        found = message(read(json.dumps(given).encode(), loads))
        take_in(found, BOUNDS)
    except (DamagedEnvelope, DecodeError):
        return
    except (ValueError, TypeError, AttributeError, KeyError):
        return  # no message at all: its transport sets it aside (test_redis_transport_damaged)
    raw = envelope_of(found).message("celery")
    assert raw.priority is None or 0 <= raw.priority <= MAX_PRIORITY
    assert position_of(raw.headers) >= (0, 0)
    letter = letter_of(raw)
    for form in Form:
        body, content_type = codec.encode(letter, form)
        back = codec.decode(body, content_type)
        assert (back.message.body, back.message.queue) == (raw.body, "celery")
        assert back.message.priority == raw.priority
        assert dict(back.message.properties) == dict(raw.properties)
        assert back.message.headers.keys() == raw.headers.keys()
    queue = MemoryDeadLetterQueue()
    assert queue.put([letter]) == [None]


@given(ENVELOPES)
def test_a_damaged_message_becomes_a_letter_of_all_that_came(given):
    try:
        found = message(given)
    except (ValueError, TypeError, AttributeError, KeyError):
        return
    try:
        check_fields(found)
    except DamagedEnvelope:
        kept = as_a_whole(found, Envelope("t", "o", b"", "", "", {}, {}, {}))
        raw = kept.message("celery")
        body, content_type = codec.encode(letter_of(raw), Form.JSON)
        assert codec.decode(body, content_type).message.body == raw.body
        assert raw.body


@pytest.mark.parametrize(
    ("properties", "place", "why"),
    [({"priority": "high"}, {}, "priority is not a number but str 'high'"),
     ({"priority": {}}, {}, "priority is not a number"),
     ({"priority": True}, {}, "priority is not a number"),
     ({"priority": 1.5}, {}, "priority is not a number"),
     ({"delivery_mode": []}, {}, "delivery_mode is not a number"),
     ({"correlation_id": 5}, {}, "correlation_id is not text"),
     ({"reply_to": {}}, {}, "reply_to is not text"),
     ({}, {"routing_key": 5}, "routing_key is not text"),
     ({}, {"exchange": {}}, "exchange is not text")],
)  # fmt: skip
def test_a_field_of_another_type_is_damage_and_says_which(properties, place, why):
    given = envelope(properties=properties, place=place)
    with pytest.raises(DamagedEnvelope, match=why):
        take_in(message(given), BOUNDS)
    with pytest.raises(DamagedEnvelope, match=why):
        read(json.dumps(given).encode(), loads)


@pytest.mark.parametrize(
    ("priority", "read_as"),
    [(None, None), (0, 0), (9, 9), ("5", 5), (3.0, 3), (-1, 0), (1000, 255), (10**400, 255)],
    ids=lambda one: str(one)[:6],
)
def test_a_priority_that_is_a_number_is_read_as_brokers_do(priority, read_as):
    found = message(envelope(properties={"priority": priority}))
    take_in(found, BOUNDS)
    assert envelope_of(found).message("q").priority == read_as


# -- what a body would be -----------------------------------------------------------------------

BOMBS = {
    "lists": b"[[[" + b"[]," * 2_000_000 + b"[]]], {}, {}]",
    "objects": b"[[[" + b"{}," * 2_000_000 + b"{}]], {}, {}]",
    "numbers": b"[[[" + b"0," * 2_000_000 + b"0]], {}, {}]",
    "keys": b"[[{" + b'"a":0,' * 1_000_000 + b'"a":0}], {}, {}]',
    "strings": b"[[[" + b'"",' * 2_000_000 + b'""]], {}, {}]',
    "levels": b"[[" + b"[" * 5000 + b"]" * 5000 + b"], {}, {}]",
    "levels that do not end": b"[" * 5_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_told_before_it_is_parsed(name):
    found = message(envelope(BOMBS[name]))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"more than 200(000)? (values|levels): if yours may"):
            take_in(found, BOUNDS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(BOMBS[name]) + 2**20, "it costs its bytes, and not what it stands for"


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_the_envelope_itself_is_damage(name):
    for field in ("headers", "properties"):
        given = json.dumps(envelope(**{field: {"a": 5}})).encode()
        bomb = given.replace(b'"a": 5', b'"a": ' + BOMBS[name])
        with pytest.raises(DamagedEnvelope, match="too many"):
            read(bomb, loads)


def nested(levels, value="x"):
    for number in range(levels):
        value = {"a": value} if number % 2 else [value]
    return value


def test_headers_of_any_broker_are_as_deep_at_most_as_what_keeps_them_takes():
    """AMQP hands them over parsed; what waits, and letters, hold them two levels down."""
    found = message(envelope(headers={"deep": nested(HEADER_LEVELS - 1)}))
    take_in(found, BOUNDS)
    assert row_of(envelope_of(found).message("q"))
    for levels in (HEADER_LEVELS, 50_000):
        found = message(envelope(headers={"deep": nested(levels)}))
        with pytest.raises(DamagedEnvelope, match="more than 98 levels"):
            take_in(found, BOUNDS)


def test_what_unpacks_to_too_much_is_refused_before_it_is_all_there():
    before = dict(compression._decoders)
    try:
        bound_decompression(2**20)
        packed = bz2.compress(BOMBS["lists"])
        assert len(packed) < 5000
        found = message(envelope(packed, headers={"compression": "application/x-bz2"}))
        with pytest.raises(ValueError, match=r"larger than 1048576 bytes .* message.most_unpacked"):
            found._reraise_error()
    finally:
        compression._decoders.update(before)


@pytest.mark.parametrize("codec_name", ["bz2", "zip", "hex", "idna", "punycode", "rot13", "x"])
def test_no_codec_that_unpacks_or_takes_long_reads_a_body(codec_name):
    """kombu decodes what is no JSON by whatever codec of Python's its encoding names."""
    for content_type in ("application/data", "application/text", None, ""):
        given = envelope(**{"content-type": content_type, "content-encoding": codec_name})
        with pytest.raises(DecodeError, match="content encoding"):
            take_in(message(given), BOUNDS)


def test_a_large_honest_body_is_read():
    lines = [{"sku": f"sku-{n}", "n": n, "text": "[,:{" * 9} for n in range(20_000)]
    found = message(envelope(json.dumps([[lines], {}, {}]).encode()))
    take_in(found, BOUNDS)
    assert found.payload[0] == [lines]


def test_it_is_looked_at_once():
    found = message(envelope(BOMBS["levels"]))
    take_in(found, Bounds(nodes=10**9, depth=10**9))
    take_in(found, BOUNDS)
