"""What Celery's listeners and log are told of a task that ended or never ran."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from celery import chain, chord, group
from celery.backends.base import DisabledBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.adapters.celery.worker.task_events import ErrorLogFilter, show_error, tell_lost
from angzarr.errors import DeliveryError
from angzarr.events.event import Message
from polling import wait_until


@pytest.fixture
def log(caplog):
    logger = logging.Logger("tracer")  # noqa: LOG001 - of this test alone
    logger.addHandler(caplog.handler)
    logger.addFilter(ErrorLogFilter())
    return logger


def say(log, task_id):
    said = {"id": task_id, "exc": "ValueError('hunter2')", "traceback": "hunter2"}
    try:
        raise ValueError("hunter2")
    except ValueError:
        log.exception("Task %(id)s: %(exc)s", said, extra={"data": said})


def test_the_line_about_the_task_hides_what_its_letter_hides(log, caplog):
    show_error("t1", "login of [redacted]", "Traceback …")
    say(log, "t1")
    (record,) = caplog.records
    assert record.getMessage() == "Task t1: login of [redacted]\nTraceback …"
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(vars(record))


def test_lines_about_other_tasks_and_later_ones_are_left(log, caplog):
    show_error("t1", "hidden")
    say(log, "t2")
    say(log, "t1")
    say(log, "t1")
    assert [record.getMessage() for record in caplog.records] == [
        "Task t2: ValueError('hunter2')", "Task t1: hidden", "Task t1: ValueError('hunter2')",
    ]  # fmt: skip
    log.warning("no mapping %s %s", "a", "b")
    assert caplog.records[-1].getMessage() == "no mapping a b"


LOST = DeliveryError("RabbitMQ had given it back to workers too often")


@pytest.fixture
def app(make_app):
    made = make_app(backend="cache+memory://", facts={"log": False})
    made.heard = []

    @made.task(name="add")
    def add(*numbers):
        return sum(numbers)

    @made.task(name="total")
    def total(numbers):
        return numbers

    @made.task(name="heard")
    def heard(request, error, _traceback):
        made.heard.append((request.id, type(error).__name__))

    return made


@pytest.fixture
def lost(sent):
    """The first message in the queue, and those that followed it there."""

    def take():
        first, *others = [
            Message(
                body=one.body if isinstance(one.body, bytes) else one.body.encode(),
                content_type=one.content_type, content_encoding=one.content_encoding,
                headers=one.headers, properties=one.properties, queue="q",
            )
            for one in sent()
        ]  # fmt: skip
        return first, others

    return take


def test_the_rest_of_its_chain_the_chord_around_it_and_errbacks_hear_of_it(app, lost):
    add, heard, total = (app.tasks[name] for name in ("add", "heard", "total"))
    alone = chain(add.s(1), add.s(1)).on_error(heard.s()).apply_async()
    tell_lost(app, lost()[0], LOST)
    assert (alone.state, alone.parent.state) == ("FAILURE", "FAILURE")
    assert str(alone.parent.result) == str(LOST)
    assert app.heard == [(alone.parent.id, "DeliveryError")]
    app.heard.clear()
    inside = chord([chain(add.s(1), add.s(1))], total.s().on_error(heard.s())).apply_async()
    tell_lost(app, lost()[0], LOST)
    assert inside.state == "FAILURE"
    assert [kind for _, kind in app.heard] == ["ChordError"]


def with_body(change):
    def damage(message):
        return replace(message, body=json.dumps(change(json.loads(message.body))).encode())

    return damage


def with_headers(**headers):
    return lambda message: replace(message, headers={**message.headers, **headers})


#: Damage that leaves to be read who waits.
TELLING = {
    "a time limit": with_headers(timelimit="soon"),
    "a group": with_headers(group=5, group_index="first"),
    "args": with_body(lambda body: [{"no": "list"}, *body[1:]]),
    "kwargs": with_body(lambda body: [body[0], ["no mapping"], body[2]]),
    "another follower": with_body(lambda body: [*body[:2], {**body[2], "chord": "no task"}]),
    "what only a worker says": with_body(lambda body: [*body[:2], {**body[2], "id": "another"}]),
}


@pytest.mark.parametrize("damage", TELLING.values(), ids=TELLING.keys())
def test_what_is_sound_of_a_damaged_message_is_enough(app, lost, damage):
    result = chain(app.tasks["add"].s(1), app.tasks["add"].s(1)).apply_async()
    tell_lost(app, damage(lost()[0]), LOST)
    assert (result.state, result.parent.state) == ("FAILURE", "FAILURE")


def test_a_body_that_cannot_be_read_leaves_its_own_result_to_be_told(app, lost):
    for body in (b"\xff{", b"[" * 100_000, b"[" + b"[]," * 200_000 + b"[]]"):
        result = chain(app.tasks["add"].s(1), app.tasks["add"].s(1)).apply_async()
        tell_lost(app, replace(lost()[0], body=body), LOST)
        assert (result.parent.state, result.state) == ("FAILURE", "PENDING")


@pytest.mark.parametrize("state", ["SUCCESS", "FAILURE", "REVOKED"])
def test_what_has_ended_keeps_its_result_and_nobody_is_told_again(app, lost, state):
    heard = app.tasks["heard"].s()
    result = chain(app.tasks["add"].s(1), app.tasks["add"].s(1)).on_error(heard).apply_async()
    app.backend.store_result(
        result.parent.id, 1 if state == "SUCCESS" else ValueError("before"), state
    )
    tell_lost(app, lost()[0], LOST)
    assert (result.parent.state, result.state, app.heard) == (state, "PENDING", [])


def test_where_results_are_ignored_errbacks_hear_of_it_all_the_same(app, lost):
    result = app.tasks["add"].apply_async(
        (1,), ignore_result=True, link_error=app.tasks["heard"].s()
    )
    tell_lost(app, lost()[0], LOST)
    assert (result.state, app.heard) == ("PENDING", [(result.id, "DeliveryError")])


def test_where_there_is_no_result_backend_errbacks_are_sent(app, sent, monkeypatch):
    monkeypatch.setattr(app._local, "backend", DisabledBackend(app), raising=False)
    message = Message(
        body=json.dumps([[], {}, {"errbacks": [dict(app.signature("elsewhere"))]}]).encode(),
        content_type="application/json", content_encoding="utf-8",
        headers={"id": "a", "task": "unknown"}, queue="q",
    )  # fmt: skip
    tell_lost(app, message, LOST)
    assert [one.headers["task"] for one in sent()] == ["elsewhere"]


def test_a_result_backend_that_is_away_costs_a_line_and_no_more(app, lost, monkeypatch, caplog):
    def away(*_args, **_options):
        raise ConnectionError("away")

    app.tasks["add"].delay(1)
    monkeypatch.setattr(app.backend, "get_state", away)
    tell_lost(app, lost()[0], LOST)
    assert "not_announced" in caplog.text


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = ["id", "task", "chain", "chord", "errbacks", "callbacks", "group", "ignore_result", "_get"]


@settings(max_examples=200, deadline=None)
@given(
    headers=st.dictionaries(st.sampled_from(NAMES), ODD),
    embed=st.dictionaries(st.sampled_from(NAMES), ODD) | ODD,
    args=ODD,
)
def test_no_message_however_odd_breaks_who_tells(odd_app, headers, embed, args):
    message = Message(
        body=json.dumps([args, {}, embed]).encode(),
        content_type="application/json", content_encoding="utf-8",
        headers={"id": "a", "task": "t", **headers}, queue="q",
    )  # fmt: skip
    tell_lost(odd_app, message, LOST)


@pytest.fixture(scope="module")
def odd_app():
    from angzarr import Angzarr

    return Angzarr("odd", broker="memory://odd", backend="cache+memory://")


def test_who_makes_a_letter_of_a_raw_message_tells_of_it(app, lost):
    """Rows of the schedule, parked events, and what RabbitMQ gave up go this way."""
    app._runtime.begin_work()
    try:
        app._parts.salvage.get().dead_letters.put = lambda letters: [None] * len(letters)
        result = group([chain(app.tasks["add"].s(1), app.tasks["add"].s(1))]).apply_async()
        app._runtime.bury(lost()[0], LOST, "RABBITMQ_REJECTED")
        wait_until(result.failed, "its group has failed", 60)
    finally:
        app._runtime.end_work()
