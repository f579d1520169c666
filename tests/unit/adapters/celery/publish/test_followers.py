"""Followers: sent before the claim is completed, with ids that are the same when sent again."""

from __future__ import annotations

import json

import pytest
from amqp.exceptions import AccessRefused, MessageNacked, NotFound, PreconditionFailed
from celery import chain, chord, group
from kombu.exceptions import OperationalError

from angzarr.adapters.celery.publish.followers import CeleryFollowers, forget_followers
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING
from angzarr.errors import BrokerUnavailable, DeliveryError, Unavailable, is_absence


@pytest.fixture
def add(app):
    @app.task(name="add", lazy=False)
    def add(*numbers):
        return sum(numbers)

    return add


@pytest.fixture
def publish(app, add, in_task, delivery_of):
    """Publish what follows as a worker does: signatures arrive as JSON."""

    def run(value=1, *, callbacks=None, chain=None, priority=None, task_id="task-1"):
        wired = json.loads(json.dumps({"callbacks": callbacks, "chain": chain}))
        followers = CeleryFollowers(app)
        delivery = delivery_of(task_id, priority)

        def settle(request):
            following = FOLLOWING.set(request)
            try:
                followers.publish(delivery, value)
            finally:
                FOLLOWING.reset(following)

        in_task(add, settle, id=task_id, **wired)

    return run


def told(messages):
    return [
        (message.headers["task"], message.headers["id"], message.payload[0]) for message in messages
    ]


def linked(add):
    """Every shape that Celery lets a user link."""
    return {
        "a task": add.s(10),
        "a group": group(add.s(10), add.s(20)),
        "a chain": chain(add.s(10), add.s(20)),
        "a chord": chord([add.s(10), add.s(20)], add.s(30)),
        "a group of chains": group(chain(add.s(1), add.s(2)), add.s(3)),
        "a chain that ends in a group": chain(add.s(1), group(add.s(2), add.s(3))),
    }


@pytest.mark.parametrize("shape", [
    "a task", "a group", "a chain", "a chord", "a group of chains", "a chain that ends in a group",
])  # fmt: skip
def test_what_is_linked_has_the_same_ids_when_it_is_sent_again(add, publish, sent, shape, app):
    app.conf.result_backend = "cache+memory://"
    link = linked(add)[shape]
    publish(callbacks=[link])
    first = sent()
    publish(callbacks=[link])
    again = sent()
    assert first
    assert ids_of(first) == ids_of(again)


def ids_of(messages):
    """Return the ids of all messages, and of all that will follow them."""
    found = []
    for message in messages:
        embed = message.payload[2]
        later = [*(embed["chain"] or ()), *([embed["chord"]] if embed["chord"] else ())]
        found.append((message.headers["id"], [_inner(step) for step in later]))
    return sorted(found)


def _inner(step):
    return step["options"].get("task_id"), [
        _inner(part) for part in step["kwargs"].get("tasks", ())
    ]


def test_two_links_are_two_tasks_with_ids_of_their_own(add, publish, sent):
    publish(callbacks=[add.s(1), add.s(1)])
    ids = {message.headers["id"] for message in sent()}
    assert len(ids) == 2


def test_links_of_two_tasks_do_not_share_an_id(add, publish, sent):
    publish(callbacks=[add.s(1)], task_id="task-1")
    publish(callbacks=[add.s(1)], task_id="task-2")
    assert len({message.headers["id"] for message in sent()}) == 2


def test_an_id_that_a_step_has_already_stays(add, publish, sent):
    publish(callbacks=[add.s(1).set(task_id="mine")], chain=[add.s(2).set(task_id="next")])
    assert {message.headers["id"] for message in sent()} == {"mine", "next"}


def test_the_value_is_handed_on_and_the_chain_goes_on(add, publish, sent):
    last, following = add.s(30), add.s(20)
    publish(5, callbacks=[add.s(10)], chain=[last, following])
    link, step = sent()
    assert link.payload[0] == [5, 10]
    assert step.payload[0] == [5, 20]
    assert [later["args"] for later in step.payload[2]["chain"]] == [[30]]
    assert step.headers["parent_id"] == "task-1"


def test_nothing_follows_where_nothing_is_linked(publish, sent):
    publish()
    assert sent() == []


@pytest.mark.parametrize("callbacks", [[5], [{"no": "task"}], [None], [["a"]], 7])
def test_a_link_that_is_no_task_is_said_once_and_not_held(publish, callbacks):
    with pytest.raises(DeliveryError, match="cannot be sent"):
        publish(callbacks=callbacks)


def test_a_value_that_is_no_json_is_said_once_and_not_held(add, publish):
    with pytest.raises(DeliveryError, match="cannot be sent"):
        publish(object(), callbacks=[add.s(1)])


def test_a_broker_that_is_away_is_held(add, publish, monkeypatch):
    def away(*_args, **_options):
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr("kombu.messaging.Producer.publish", away)
    with pytest.raises(BrokerUnavailable):
        publish(callbacks=[add.s(1)])


def nacked():
    """A nack as kombu raises it."""
    error = OperationalError("nacked")
    error.__cause__ = MessageNacked("full")
    return error


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (PreconditionFailed("406, its queue has other arguments"), False),
        (NotFound("404, no exchange"), False),
        (AccessRefused("403"), False),
        (MessageNacked("full"), True),
        (nacked(), True),
        (OperationalError("no broker"), True),
    ],
    ids=repr,
)
def test_what_a_broker_refuses_for_good_is_told_from_one_that_is_away_or_full(
    add, publish, monkeypatch, error, is_away
):
    """Held for ever by the road, else, as if the broker were away."""

    def refuse(*_args, **_options):
        raise error

    monkeypatch.setattr("kombu.messaging.Producer.publish", refuse)
    with pytest.raises(BrokerUnavailable) as caught:
        publish(callbacks=[add.s(1)])
    assert is_absence(caught.value) is is_away
    with pytest.raises(BrokerUnavailable) as again:
        publish(chain=[add.s(1)])
    assert is_absence(again.value) is is_away


@pytest.mark.parametrize("kind", ["ConnectionError", "TimeoutError", "BusyLoadingError"])
def test_a_result_backend_that_is_away_is_waited_for_where_a_chord_follows(
    app, add, publish, monkeypatch, kind
):
    redis = pytest.importorskip("redis")
    app.conf.result_backend = "redis://127.0.0.1:1/0"
    app.conf.result_backend_transport_options = {"retry_policy": {"max_retries": 0}}

    def away(*_args, **_options):
        raise getattr(redis.exceptions, kind)("no result backend")

    monkeypatch.setattr(type(app.backend), "on_task_call", lambda *_: None)  # as in a worker
    monkeypatch.setattr(type(app.backend), "set_chord_size", away)
    with pytest.raises(Unavailable) as caught:
        publish(chain=[chord([add.s(10), add.s(20)], add.s(30))])
    assert is_absence(caught.value)


def test_celery_is_left_nothing_to_send_again(add, in_task):
    def forget(request):
        forget_followers(request)
        return request.callbacks, request.chain

    assert in_task(add, forget, callbacks=[1], chain=[2]) == (None, None)
