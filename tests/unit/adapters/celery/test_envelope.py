"""The envelope: small to pickle, and the raw message comes out as it came in."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.native_delayed_delivery import calculate_routing_key

from angzarr.adapters.celery.envelope import Envelope
from angzarr.events import headers as names


def envelope(body=b"[[], {}, {}]", *, headers=None, properties=None, **delivery_info):
    return Envelope(
        "token", "owner", body, "application/json", "utf-8", headers or {}, properties or {},
        delivery_info,
    )  # fmt: skip


@given(st.binary())
def test_bytes_come_out_as_they_came_in(body):
    assert envelope(body).message("q").body == body


@given(st.binary())
def test_text_that_a_transport_made_of_bytes_becomes_the_same_bytes(body):
    assert envelope(body.decode("utf-8", "surrogateescape")).message("q").body == body


def test_a_buffer_is_copied_out():
    assert envelope(memoryview(b"abc")).message("q").body == b"abc"


@given(st.integers(1, 2**28 - 1), st.from_regex(r"\A[a-z]([a-z0-9.]{0,40})\Z"))
def test_a_native_delay_leaves_no_trace_in_the_routing_key(seconds, key):
    delayed = calculate_routing_key(seconds, key)
    assert envelope(routing_key=delayed).routing_key == key
    assert envelope(routing_key=key).routing_key == key


def test_only_a_prefix_is_a_delay():
    key = "orders." + "1." * 28 + "eu"
    assert envelope(routing_key=key).routing_key == key


@pytest.mark.parametrize("info", [{}, {"routing_key": None, "exchange": None}])
def test_a_message_without_an_address_has_an_empty_one(info):
    message = envelope(**info).message("q")
    assert (message.exchange, message.routing_key, message.queue) == ("", "", "q")


def test_a_copy_takes_along_what_answers_need_and_nothing_of_one_publish():
    properties = {
        "correlation_id": "c", "reply_to": "r", "priority": 5, "delivery_tag": 7, "expiration": "9",
        "delivery_info": {}, "message_id": None,
    }  # fmt: skip
    message = envelope(properties=properties).message("q")
    assert message.properties == {"correlation_id": "c", "reply_to": "r"}
    assert message.priority == 5


@pytest.mark.parametrize(
    ("header", "named"), [("orders", "orders"), ("", None), (5, None), (["q"], None), (None, None)]
)
def test_the_first_queue_is_what_the_header_says(header, named):
    assert envelope(headers={names.QUEUE: header}).named_queue == named


def test_a_body_that_travels_twice_is_pickled_once():
    body = b"x" * 100_000
    assert len(pickle.dumps((envelope(body), body))) < 110_000
    assert pickle.loads(pickle.dumps(envelope(body))) == envelope(body)  # noqa: S301 - our own


@pytest.mark.parametrize(
    "name", ["", "amq.direct", "q" * 256, "é" * 128, "a\x00", "a\nb", "\ud800", 7, ["q"], None]
)
def test_a_name_that_no_queue_can_have_is_not_taken_from_a_header(name):
    assert envelope(headers={names.QUEUE: name}).named_queue is None


@pytest.mark.parametrize("name", ["orders", "q" * 255, "é" * 127, "amqp", "a b/c:d"])
def test_the_name_of_a_queue_is_taken_from_its_header(name):
    assert envelope(headers={names.QUEUE: name}).named_queue == name


@pytest.mark.parametrize("key", [5, {}, None, [], True])
def test_a_routing_key_that_is_none_is_none_and_no_error(key):
    assert envelope(routing_key=key).routing_key == ""


@pytest.mark.parametrize(("packed", "kept"), [(True, {"compression": "zlib"}), (False, {})])
def test_what_is_packed_still_says_how(packed, kept):
    found = envelope(b"x", headers={"compression": "zlib"})._replace(packed=packed)
    assert found.message("q").headers == kept
