"""A copy is the received message once more: equal but for what one try adds (decisions 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.delivery import read
from angzarr.delivery.schedule import FURTHEST, copy_of, id_of, put_early
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
