"""The envelope: small to pickle, and message and headers come out as they came in."""

from __future__ import annotations

import pickle

import pytest
from celery.app.task import Context
from celery.exceptions import Ignore
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.native_delayed_delivery import calculate_routing_key

from angzarr.adapters.celery.envelope import FIELD, TOLD, Envelope, custom_headers
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


CUSTOM = {"traceparent": "00-…", "x-mine": {"a": 1}, "absent": None}
#: Every name that the package reads or writes, but the W3C's; and one of a release to come.
OURS = [
    *(
        value
        for name, value in vars(names).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    ),
    "angzarr-of-a-newer-release",
]
OURS.remove(names.TRACEPARENT)


def a_request(**more):
    """Return a request with every field that Celery knows, as a child has it."""
    known = dict.fromkeys(vars(Context), "said")
    known |= {"lang": "py", "task": "t", "argsrepr": "()", "kwargsrepr": "{}", "compression": None}
    return {**known, "headers": None, **more}


@pytest.mark.parametrize("custom", [CUSTOM, {"x": 1}])
def test_they_are_those_that_celery_would_find(custom):
    request = a_request(**custom)
    assert custom_headers(request) == Context()._get_custom_headers(request) == custom


def test_what_only_a_child_needs_is_not_among_them():
    assert custom_headers(a_request(**{FIELD: ("token",), TOLD: []})) == {}


@pytest.mark.parametrize("given", [{"a": 1}, {}])
def test_a_header_of_that_name_goes_before_them(given):
    request = a_request(headers=given, x=1)
    assert custom_headers(request) == Context(request).headers == given


def test_ours_are_shown_to_no_task():
    ours = dict.fromkeys(OURS, "1")
    assert custom_headers(a_request(**ours, **CUSTOM)) == CUSTOM
    assert custom_headers(a_request(headers={**ours, "a": 1})) == {"a": 1}


@pytest.mark.parametrize("way", ["apply_async", "send_task", "signature", "replaced"])
def test_ours_are_set_by_nobody_but_us(app, sent, in_task, way):
    @app.task(name="task", bind=True)
    def task(self):
        pass

    forwarded = {**dict.fromkeys(OURS, "7"), **CUSTOM}
    if way == "apply_async":
        task.apply_async(headers=forwarded)
    elif way == "send_task":
        app.send_task("task", headers=forwarded)
    elif way == "signature":
        app.signature("task").set(headers=forwarded).delay()
    else:
        with pytest.raises(Ignore):
            in_task(task, lambda _request: task.replace(task.s().set(headers=forwarded)), id="t")
    (message,) = sent()
    assert CUSTOM.items() <= message.headers.items()
    found = {name: message.headers[name] for name in OURS if name in message.headers}
    assert found == {names.QUEUE: app.conf.task_default_queue}
