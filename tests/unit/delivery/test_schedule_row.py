"""What waits is named by what it is, and read again as it was."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.schedule import FURTHEST, id_of, put_arrived, read_row, row_of
from angzarr.errors import DecodeError, DeliveryError
from angzarr.events import headers as names
from angzarr.events.event import Message

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COPY = Message(
    body=b"[[1], {}, {}]", content_type="application/json", content_encoding="utf-8",
    headers={"id": "task-1", "task": "shop.ship", names.HOP: 2, names.ATTEMPT: 2}, queue="q",
)  # fmt: skip

texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts | st.binary(max_size=9)
    | st.floats(allow_nan=False) | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
messages = st.builds(
    Message,
    body=st.binary(max_size=40) | texts.map(lambda text: text.encode("utf-8", "replace")),
    content_type=texts,
    content_encoding=texts,
    headers=st.dictionaries(texts, values, max_size=4),
    queue=texts,
    exchange=texts,
    routing_key=texts,
    priority=st.none() | st.integers(0, 255),
    properties=st.dictionaries(texts, texts, max_size=2),
)


@given(messages)
def test_any_message_is_read_as_it_was(message):
    assert read_row(row_of(message).text) == message


@given(messages)
def test_a_name_is_bounded_and_fit_for_every_store(message):
    name = id_of(message)
    assert len(name) < 400
    assert name.isprintable()
    assert " " not in name


def with_headers(**headers):
    return replace(COPY, headers={**COPY.headers, **headers})


@pytest.mark.parametrize(
    "same",
    [
        with_headers(**{names.REST: 40}),
        with_headers(**{names.FIRST_ATTEMPT_AT: "2026-01-01T00:00:09+00:00"}),
        with_headers(**{names.ATTEMPT: 3}),
        replace(COPY, routing_key="q", priority=9),
    ],
)
def test_copies_at_one_position_are_one(same):
    assert id_of(same) == id_of(COPY)


@pytest.mark.parametrize(
    "other",
    [
        with_headers(id="task-2"),
        with_headers(task="shop.pay"),
        with_headers(**{names.EVENT_ID: "e1"}),
        with_headers(**{names.HOP: 3}),
        with_headers(**{names.REPLAY: 1}),
        with_headers(eta="2026-01-01T00:00:09+00:00"),
        replace(COPY, queue="other"),
        replace(COPY, body=b"[[2], {}, {}]"),
    ],
)
def test_what_must_run_apart_waits_apart(other):
    assert id_of(other) != id_of(COPY)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"body": 1}', row_of(COPY).text[:-5],
     row_of(COPY).text.replace('"headers": {', '"headers": null, "x": {'),
     row_of(COPY).text.replace('"priority": null', '"priority": "high"')],
)  # fmt: skip
def test_what_is_no_row_is_a_decode_error(text):
    with pytest.raises(DecodeError):
        read_row(text)


def test_what_could_not_be_read_again_is_refused_and_not_kept_in_part():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(DeliveryError, match="nested too deeply"):
        row_of(with_headers(deep=deep))


def test_headers_too_deep_for_what_is_left_of_the_stack_are_told_like_that():
    deep: object = 1
    for _ in range(90):
        deep = [deep]

    def row_beneath(frames: int) -> object:
        return row_beneath(frames - 1) if frames else row_of(with_headers(deep=deep, tagged=b""))

    assert read_row(row_beneath(0).text).headers["deep"] == deep
    with pytest.raises(DeliveryError, match="nested too deeply"):
        row_beneath(sys.getrecursionlimit() - len(inspect.stack()) - 60)


class Rows:
    def __init__(self):
        self.waiting = []

    def put(self, copy, at):
        self.waiting.append((copy, at))


def test_a_message_that_arrived_early_waits_as_it_is():
    rows, early = Rows(), with_headers(eta="2026-01-01T01:00:00+00:00")
    put_arrived(rows, early, NOW + timedelta(hours=1), NOW)
    assert rows.waiting == [(early, NOW + timedelta(hours=1))]


def test_what_is_to_wait_for_years_comes_after_one_and_waits_again():
    rows = Rows()
    put_arrived(rows, COPY, NOW.replace(year=9999), NOW)
    assert rows.waiting == [(COPY, NOW + FURTHEST)]
