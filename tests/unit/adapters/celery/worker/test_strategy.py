"""The strategy of a road task does what Celery's own does with each message."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from celery import signals
from celery.utils.time import rate
from celery.worker import state, strategy
from celery.worker.request import Request
from kombu.utils.json import dumps
from kombu.utils.limits import TokenBucket

from angzarr.adapters.celery.worker.request import AngzarrRequest
from angzarr.adapters.celery.worker.strategy import road


@pytest.fixture
def task(make_app):
    app = make_app(facts={"log": False})
    app._runtime.begin_work()

    @app.task(name="t", lazy=False)
    def t(*args, **kwargs):
        """Do nothing."""

    yield t
    app._runtime.end_work()


class Consumer(SimpleNamespace):
    """What strategies ask of Celery's consumer."""

    __hash__ = object.__hash__


@pytest.fixture
def consumer(task):
    made = Consumer(
        hostname="h", connection_errors=(), event_dispatcher=None, disable_rate_limits=False,
        task_buckets={"t": None}, pool=SimpleNamespace(apply_async=None), requests=[],
        limited=[], timer=SimpleNamespace(call_at=lambda *call, **_: made.later.append(call)),
        later=[], apply_eta_task=None, _limit_post_eta=None, app=task.app,
        controller=SimpleNamespace(state=state),
        qos=SimpleNamespace(increment_eventually=lambda: None),
    )  # fmt: skip
    made.on_task_request = made.requests.append
    made._limit_task = lambda *given: made.limited.append(given)
    yield made
    state.reset_state()


def a_message(body=None, **headers):
    payload = body or [[1], {"a": 2}, {}]
    return SimpleNamespace(
        headers={"task": "t", "id": "one", "lang": "py", **headers}, payload=payload,
        body=dumps(payload), content_type="application/json", content_encoding="utf-8",
        properties={"correlation_id": "one"}, delivery_info={"routing_key": "q"}, errors=[],
    )  # fmt: skip


def take(make, task, consumer, message, body=None, callbacks=()):
    make(task, task.app, consumer)(message, body, "ack", "reject", callbacks)


def of(request):
    """All that a request says, without what is made anew for each."""
    said = {
        name: getattr(request, name)
        for name in ("id", "name", "args", "kwargs", "eta", "expires", "utc", "hostname", "on_ack",
                     "on_reject", "body", "content_type", "connection_errors", "eventer", "task",
                     "type", "root_id", "parent_id", "argsrepr", "time_limits", "ignore_result")
    }  # fmt: skip
    fields = {name: value for name, value in request.request_dict.items() if name != "angzarr"}
    return said, fields


@pytest.mark.parametrize(
    "headers",
    [{}, {"timelimit": [3, 2], "root_id": "r"}, {"shadow": "other", "ignore_result": True},
     {"expires": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}],
)  # fmt: skip
def test_the_request_is_that_of_celery(task, consumer, headers):
    for make in (strategy.default, road):
        take(make, task, consumer, a_message(**headers))
    theirs, ours = consumer.requests
    assert of(ours) == of(theirs)
    assert set(state.reserved_requests) == {ours, theirs}


def test_receivers_and_callbacks_get_the_request(task, consumer):
    received, seen = [], []

    def hear(request, **_):
        received.append(request)

    signals.task_received.connect(hear)
    try:
        take(road, task, consumer, a_message(), callbacks=(seen.append,))
    finally:
        signals.task_received.disconnect(hear)
    assert received == seen == consumer.requests != []


def test_what_was_revoked_is_not_handed_over(task, consumer, monkeypatch):
    state.revoked.add("one")
    task.app._runtime.settlement.settle = lambda *_: None
    take(road, task, consumer, a_message())
    assert consumer.requests == []


def test_a_rate_limit_holds_from_the_moment_it_is_set(task, consumer):
    receive = road(task, task.app, consumer)
    consumer.task_buckets["t"] = TokenBucket(rate("1/m"), capacity=1)
    receive(a_message(), None, "ack", "reject", ())
    assert (len(consumer.limited), consumer.requests) == (1, [])
    consumer.task_buckets["t"] = None
    receive(a_message(), None, "ack", "reject", ())
    assert len(consumer.requests) == 1


def test_a_message_that_is_to_wait_waits(task, consumer):
    due = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    take(road, task, consumer, a_message(eta=due))
    assert (len(consumer.later), consumer.requests) == (1, [])


def test_a_message_of_the_old_protocol_is_read(task, consumer):
    old = {"task": "t", "id": "two", "args": [1], "kwargs": {}}
    for make in (strategy.default, road):
        take(make, task, consumer, a_message(body=dict(old)), body=dict(old))
    theirs, ours = consumer.requests
    assert (ours.id, ours.args) == (theirs.id, theirs.args) == ("one", [1])


@contextmanager
def level(name, number):
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(number)
    try:
        yield
    finally:
        logger.setLevel(before)


def test_lines_are_celerys(task, consumer, monkeypatch):
    theirs = object()
    monkeypatch.setattr(strategy, "default", lambda *_, **__: theirs)
    with level("celery.worker.strategy", logging.WARNING):
        assert road(task, task.app, consumer) is not theirs
    with level("celery.worker.strategy", logging.INFO):
        assert road(task, task.app, consumer) is theirs


@pytest.mark.parametrize("groups", [set(), {"worker", "task"}])
def test_events_are_sent_from_the_moment_they_are_asked_for(task, consumer, groups):
    sent = []
    eventer = SimpleNamespace(
        enabled=True, groups={"worker"}, send=lambda kind, **said: sent.append((kind, said))
    )
    consumer.event_dispatcher = eventer
    receive = road(task, task.app, consumer)
    receive(a_message(), None, "ack", "reject", ())
    assert sent == []
    eventer.groups = groups
    receive(a_message(argsrepr="(1,)"), None, "ack", "reject", ())
    ((kind, said),) = sent
    assert (kind, said["uuid"], said["args"]) == ("task-received", "one", "(1,)")
    assert len(consumer.requests) == 2


def ended(task, consumer, make):
    """What Celery's account says of a request that *make* accepted and that succeeded."""
    state.reset_state()
    acknowledged, events = [], []
    receive = strategy.default(task, task.app, consumer)
    receive(a_message(), None, lambda *_: acknowledged.append("ack"), "reject", ())
    (request,) = consumer.requests
    consumer.requests.clear()
    request.send_event = lambda kind, **_: events.append(kind)
    make(request, 5, time.monotonic())
    running = (
        dict(state.total_count), [*state.all_total_count], set(state.active_requests) == {request},
        state.requests.get("one") is request, request.worker_pid,
        abs(request.time_start - time.time()) < 60,
    )  # fmt: skip
    request.on_success((0, "None", 0.1))
    return running, acknowledged, events, set(state.active_requests), dict(state.requests)


def test_the_account_of_what_runs_is_celerys(task, consumer, monkeypatch):
    monkeypatch.setattr(state, "all_total_count", state.all_total_count)
    state.all_total_count[0] = 0
    ours = ended(task, consumer, AngzarrRequest.on_accepted)
    state.all_total_count[0] = 0
    theirs = ended(task, consumer, Request.on_accepted)
    assert ours == theirs
    assert ours[1:3] == (["ack"], ["task-started", "task-succeeded"])


@pytest.mark.parametrize("known", [False, True])
def test_celery_keeps_the_ids_of_successes_only_where_it_asks_for_them(task, consumer, known):
    task.app.conf.worker_deduplicate_successful_tasks = known
    ended(task, consumer, AngzarrRequest.on_accepted)
    assert ("one" in state.successful_requests) is known
