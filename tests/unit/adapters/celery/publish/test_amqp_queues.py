"""Which queues on RabbitMQ are guarded, and by what."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from amqp.exceptions import NotFound
from kombu import Queue

from angzarr.adapters.celery.publish.amqp import DELIVERY_LIMIT, check_queues
from angzarr.adapters.celery.publish.publisher import native_delay
from angzarr.adapters.celery.worker.rejected_by_broker import declare, what_happened
from angzarr.errors import ConfigurationError

GUARD = {
    "x-queue-type": "quorum",
    "x-delivery-limit": DELIVERY_LIMIT,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "angzarr-dropped",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@pytest.fixture
def amqp_app(make_app):
    return lambda **conf: (
        make_app(broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1", **conf).amqp.queues
    )


def test_queues_that_nobody_described_are_guarded(make_app):
    app = make_app(broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1")
    for name in (app.conf.task_default_queue, "crm", "angzarr-replay-outcomes"):
        assert app.amqp.queues[name].queue_arguments == GUARD, name


@pytest.mark.parametrize("queues", ["guarded", "plain"])
def test_the_queue_of_the_dropped_is_sent_to_as_it_is(make_app, monkeypatch, queues):
    monkeypatch.setenv("ANGZARR_AMQP_QUEUES", queues)
    app = make_app(broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1")
    queue = app.amqp.queues["angzarr-dropped"]
    assert queue.no_declare
    assert not native_delay(app, queue)


def test_what_is_dropped_goes_to_the_queue_of_the_apps_prefix(amqp_app, monkeypatch):
    monkeypatch.setenv("ANGZARR_PREFIX", "shop")
    arguments = amqp_app()["crm"].queue_arguments
    assert arguments["x-dead-letter-routing-key"] == "shop-dropped"


def test_queues_that_the_user_described_are_left_alone(amqp_app):
    mine = {"x-queue-type": "quorum", "x-delivery-limit": 7}
    queues = amqp_app(task_queues=[Queue("mine", queue_arguments=dict(mine))])
    assert queues["mine"].queue_arguments == mine
    assert queues["other"].queue_arguments == GUARD


def test_plain_queues_are_those_of_celery(amqp_app, monkeypatch):
    monkeypatch.setenv("ANGZARR_AMQP_QUEUES", "plain")
    assert amqp_app()["crm"].queue_arguments == {"x-queue-type": "quorum"}


def test_classic_queues_have_no_such_arguments(amqp_app):
    queues = amqp_app(task_create_missing_queue_type="classic")
    assert queues["crm"].queue_arguments is None


@pytest.mark.parametrize(
    ("version", "limit"),
    [("3.10.8", {}), ("3.13.7", {}), ("4.0.1", {"x-delivery-limit": -1}), ("of our own", {})],
)
def test_what_is_dropped_is_not_dropped_again_by_rabbitmq_4(version, limit):
    declared = []

    def queue_declare(name, *, passive=False, **how):
        if passive:
            raise NotFound(name)
        declared.append((name, how))

    @contextmanager
    def channel():
        yield SimpleNamespace(queue_declare=queue_declare)

    there = SimpleNamespace(server_properties={"version": version})
    declare(SimpleNamespace(channel=channel, connection=there), "angzarr-dropped")
    arguments = {"x-queue-type": "quorum", **limit}
    assert declared == [
        ("angzarr-dropped", {"durable": True, "auto_delete": False, "arguments": arguments})
    ]


@pytest.mark.parametrize(
    "headers", [{}, None, {"x-death": None}, {"x-death": ["?"]}, {"x-death": [{"queue": 3}]}]
)
def test_a_message_without_a_reason_is_told_as_such(headers):
    error, code = what_happened(headers)
    assert code == "RABBITMQ_UNKNOWN"
    assert "unknown" in str(error)


#: What RabbitMQ refuses of a quorum queue (tests/adapters/test_rabbitmq_queues_of_tasks.py).
UNFIT = {
    "max_priority": {"max_priority": 5},
    "x-max-priority": {"queue_arguments": {"x-max-priority": 5}},
    "x-queue-mode": {"queue_arguments": {"x-queue-mode": "lazy"}},
    "x-queue-master-locator": {"queue_arguments": {"x-queue-master-locator": "min-masters"}},
    "x-queue-version": {"queue_arguments": {"x-queue-version": 2}},
    "durable": {"durable": False},
    "exclusive": {"exclusive": True},
    "auto_delete": {"auto_delete": True},
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_a_quorum_queue_cannot_have_is_refused_with_a_cure_that_helps(make_app, name):
    given = UNFIT[name]
    arguments = {"x-queue-type": "quorum", **given.get("queue_arguments", {})}
    queue = Queue("q", **{**given, "queue_arguments": arguments})
    app = make_app(broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1", task_queues=[queue])
    with pytest.raises(ConfigurationError, match=r"'q' has .*(remove it|durable).*") as caught:
        check_queues(app)
    assert "delete it" not in str(caught.value), "it would be declared in the same way again"


def test_a_highest_priority_for_all_queues_is_refused_unless_they_are_classic(make_app):
    app = make_app(
        broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1", task_queue_max_priority=9
    )
    with pytest.raises(ConfigurationError, match=r"task_queue_max_priority.*'classic'"):
        check_queues(app)
    classic = make_app(
        broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1", task_queue_max_priority=9,
        task_default_queue_type="classic", task_default_exchange_type="direct",
        task_create_missing_queue_type="classic", task_create_missing_queue_exchange_type="direct",
    )  # fmt: skip
    check_queues(classic)
    made = [classic.amqp.queues[name] for name in ("q", "angzarr-replay-outcomes")]
    assert {(one.queue_arguments or {}).get("x-queue-type", "classic") for one in made} == {
        "classic"
    }
