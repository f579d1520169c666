"""A copy is the received message once more, and a row of the schedule is read again as it was."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.delivery import read
from angzarr.delivery.schedule import (
    FURTHEST,
    copy_of,
    id_of,
    put_arrived,
    put_early,
    read_row,
    row_of,
)
from angzarr.errors import DecodeError, DeliveryError
from angzarr.events import headers as names
from angzarr.events.event import Message

#: What a message of a chain inside a chord carries, with everything a user can set.
CELERY = {
    "id": "task-1", "task": "h", "root_id": "root", "parent_id": "parent", "group": "group",
    "group_index": 3, "lang": "py", "timelimit": [5, 4], "argsrepr": "(1,)", "kwargsrepr": "{}",
    "origin": "gen1@host", "ignore_result": False, "replaced_task_nesting": 0, "shadow": "nick",
    "stamped_headers": ["tenant"], "stamps": {"tenant": ["acme"]}, "expires": "2030-01-01T00:00:00",
    "retries": 0, "traceparent": "00-1-2-01", "user-header": {"deep": [1, None]},
    names.EVENT_ID: "e1", names.CORRELATION_ID: "c1", names.CONFIG_PINS: '{"a": "1"}',
    names.REPLAY: 2, names.LETTER_ID: "letter", names.REPLAYED: "true",
}  # fmt: skip
#: All that one try, one copy or one broker adds.
CHANGED = {"retries", names.ATTEMPT, names.HOP, names.QUEUE, names.FIRST_ATTEMPT_AT}
DROPPED = {
    "x-delivery-count": 4, "x-death": [{"count": 1}], "x-first-death-queue": "delay",
    "x-first-death-exchange": "x", "x-first-death-reason": "expired", "eta": "2020-01-01T00:00:00",
    names.WAITED_FOR: "2020-01-01T00:00:00", names.REST: 40,
}  # fmt: skip


def received(headers):
    return Message(
        body=b'[[1], {}, {"callbacks": [1], "errbacks": [2], "chain": [3], "chord": {}}]',
        content_type="application/json", content_encoding="utf-8", headers=headers, queue="orders",
        exchange="shop", routing_key="orders.eu", priority=7,
        properties={"correlation_id": "task-1", "reply_to": "me"},
    )  # fmt: skip


def copied(world, headers, *, attempt=2, hop=1, **changes):
    message = received(headers)
    delivery = read(message, args=[1], kwargs={}, token="t", owner="o", **changes)
    return message, copy_of(delivery, attempt=attempt, hop=hop)


def without(headers, *dropped):
    return {name: value for name, value in headers.items() if name not in dropped}


def test_a_copy_equals_the_message_but_for_one_try(world):
    message, copy = copied(world, CELERY | DROPPED)
    assert without(copy.headers, *CHANGED) == without(CELERY, *CHANGED)
    for field in (
        "body", "content_type", "content_encoding", "queue", "exchange", "routing_key", "priority",
        "properties",
    ):  # fmt: skip
        assert getattr(copy, field) == getattr(message, field), field


def test_what_one_try_adds(world):
    _, copy = copied(world, CELERY)
    assert {name: copy.headers.get(name) for name in CHANGED} == {
        "retries": 1, names.ATTEMPT: 2, names.HOP: 1, names.QUEUE: "orders",
        names.FIRST_ATTEMPT_AT: None,
    }  # fmt: skip


@pytest.mark.parametrize("name", list(DROPPED))
def test_what_a_broker_counted_does_not_travel_on(world, name):
    _, copy = copied(world, CELERY | DROPPED)
    assert name not in copy.headers


@given(
    st.dictionaries(
        st.text().filter(lambda name: name not in {*CHANGED, *DROPPED, names.HELD_SINCE}),
        st.none() | st.integers() | st.text() | st.lists(st.integers()),
    )
)
def test_what_others_put_into_the_headers_is_kept(headers):
    message = received({"task": "h", **headers})
    delivery = read(message, args=[1], kwargs={}, token="t", owner="o")
    copy = copy_of(delivery, attempt=2, hop=1)
    assert without(copy.headers, *CHANGED) == {"task": "h", **headers}


def test_the_received_message_stays_as_it_was(world):
    headers = dict(CELERY)
    copied(world, headers)
    assert headers == CELERY


def test_a_copy_of_a_copy_changes_the_same_headers_only(world):
    message, copy = copied(world, CELERY)
    delivery = read(copy, args=[1], kwargs={}, token="t2", owner="o")
    again = copy_of(delivery, attempt=3, hop=2)
    assert without(again.headers, *CHANGED) == without(message.headers, *CHANGED)
    assert (again.headers[names.ATTEMPT], again.headers[names.HOP]) == (3, 2)
    read_again = read(again, args=[1], kwargs={}, token="t3", owner="o")
    assert (read_again.attempt, read_again.position) == (3, (2, 2))


def test_the_copy_is_known_by_the_same_key_and_needs_no_fingerprint(world):
    message, copy = copied(world, CELERY)
    first = read(message, args=[1], kwargs={}, token="t", owner="o")
    second = read(copy, args=["edited"], kwargs={}, token="t", owner="o")
    assert first.key == second.key
    assert first.fingerprint
    assert second.fingerprint == ""


class Puts:
    """A schedule that keeps what it is given, and for when."""

    def __init__(self):
        self.given = []

    def put(self, copy, at):
        self.given.append((copy, at))


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_what_came_before_its_eta_comes_again_without_one_and_is_the_same_row():
    eta = "2026-03-01T13:00:00+00:00"
    message, schedule = received(CELERY | {"eta": eta}), Puts()
    put_early(schedule, message, NOON + timedelta(hours=1), NOON)
    ((waits, at),) = schedule.given
    assert at == NOON + timedelta(hours=1)
    assert waits.headers == CELERY | {"eta": None, names.WAITED_FOR: eta}
    assert id_of(waits) == id_of(message)
    assert id_of(waits) != id_of(received(CELERY | {"eta": "2026-03-01T14:00:00+00:00"}))


def test_what_is_to_wait_longer_than_a_schedule_keeps_its_eta_and_waits_again():
    message, schedule = received(CELERY | {"eta": "2036-03-01T12:00:00+00:00"}), Puts()
    put_early(schedule, message, NOON + 10 * FURTHEST, NOON)
    assert schedule.given == [(message, NOON + FURTHEST)]


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
