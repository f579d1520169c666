"""Publishing to SQS: what it refuses is our error, and is told from a service that is away."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from billiard.exceptions import TimeLimitExceeded
from tests.apps import apps

from adapters.sqs_faults import Faults
from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.publish.publisher import (
    SingleConnectionPublisher,
    refuses,
    refuses_for_good,
)
from angzarr.delivery.delivery import Retried
from angzarr.delivery.schedule import read_row
from angzarr.delivery.schedule_mover import AWAY_FOR, REFUSED_FOR, Mover
from angzarr.errors import BrokerUnavailable, PublishIncomplete
from angzarr.events.event import Message, task_id_for
from angzarr.resilience.backoff import Policy
from polling import wait_until

pytestmark = pytest.mark.server("localstack")

#: What concerns the service, and so every message.
AWAY = ["ExpiredToken", "InvalidClientTokenId", "RequestThrottled", "ServiceUnavailable",
        "ThrottlingException"]  # fmt: skip
#: What concerns one queue or one message.
REFUSED = ["AccessDenied", "KmsDisabled"]


AT_ONCE = Policy(name="at_once", base=timedelta(0), max_delay=timedelta(0), max_attempts=9)


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)


@pytest.fixture
def make_app(sqs_endpoint, unique_name):
    def prepare(app):
        app.conf.task_default_queue = f"{unique_name}-one"
        app.conf.broker_transport_options = {
            "region": "us-east-1", "is_secure": False, "wait_time_seconds": 0,
            "queue_name_prefix": "",
            "client-config": {"retries": {"total_max_attempts": 1}},
        }  # fmt: skip
        app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
        app.handler("placed", name="one", policy=AT_ONCE)(ignore)
        app.handler("placed", name="two", queue=f"{unique_name}-two")(ignore)

    address = sqs_endpoint.removeprefix("http://")
    url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"
    accept = {"backend": "none", "accept_loss": True}
    with apps(prepare, broker=url, store="memory://", dlq=accept) as make:
        yield make


@pytest.fixture
def app(faults, make_app):
    return make_app()


def ignore(event):
    """Handle it."""


def publish(app, **options):
    return app.publish({"n": 1}, type="placed", **options)


def taken(app, queue):
    """Take what waits in *queue* and return the task ids; LocalStack says when it is empty."""
    found = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while message := channel.basic_get(app.amqp.queues[queue].name):
            found.append(channel.message_to_python(message).headers["id"])
            channel.basic_ack(message.delivery_tag)
    return found


# -- publish ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", AWAY + REFUSED)
def test_a_publish_that_sqs_refuses_is_our_error_with_the_id_of_the_event(app, faults, code):
    faults.code = code
    with pytest.raises(BrokerUnavailable, match=f"{code}.* so be it") as caught:
        publish(app, id="e-1")
    assert caught.value.event_id == "e-1"
    assert refuses(caught.value) is (code in REFUSED)
    faults.code = None
    publish(app, id=caught.value.event_id)
    assert taken(app, app.conf.task_default_queue) == [task_id_for("e-1", "one")]


@pytest.mark.parametrize(
    ("code", "operation", "refused"),
    [
        ("ExpiredToken", "ListQueues", False),
        ("AccessDenied", "ListQueues", False),  # no right to anything
        ("ExpiredToken", "CreateQueue", False),
        ("AccessDenied", "CreateQueue", True),
        ("QueueDeletedRecently", "CreateQueue", True),
    ],
)
def test_it_is_our_error_where_the_queue_is_looked_up_as_well(
    app, faults, code, operation, refused
):
    faults.code, faults.operation = code, operation
    with pytest.raises(BrokerUnavailable, match=code) as caught:
        publish(app)
    assert refuses(caught.value) is refused


def test_what_is_too_large_for_sqs_is_our_error_and_says_what_to_mend(app):
    with pytest.raises(BrokerUnavailable, match=r"InvalidParameterValue.*\. Fix that") as caught:
        app.publish({"text": "x" * 2**20}, type="placed")
    assert refuses(caught.value)


def test_a_message_whose_queue_was_deleted_finds_it_created_again(app):
    queue = app.conf.task_default_queue
    for retry in (True, False):
        publish(app, retry=retry)
        with app.connection_for_write() as connection:
            channel = connection.default_channel
            channel.sqs().delete_queue(QueueUrl=channel._new_queue(queue))
        if not retry:
            with pytest.raises(PublishIncomplete):
                publish(app, retry=False)
        event = publish(app, retry=retry)
        assert taken(app, queue) == [task_id_for(event.id, "one")]


def test_a_queue_that_is_not_among_the_predefined_is_refused_and_no_other(app):
    with app.connection_for_write() as connection:
        url = connection.default_channel._new_queue(app.conf.task_default_queue)
    known = {app.conf.task_default_queue: {"url": url}}
    options = {**app.conf.broker_transport_options, "predefined_queues": known}
    app.conf.broker_transport_options = options
    with pytest.raises(PublishIncomplete) as caught:
        publish(app, id="e-1")
    assert caught.value.missing == ("two",)
    assert refuses(caught.value.__cause__)


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestThrottled", "AccessDenied"])
def test_a_fan_out_that_sqs_breaks_half_way_names_who_is_missing(app, faults, unique_name, code):
    faults.code, faults.queue = code, f"{unique_name}-two"
    with pytest.raises(PublishIncomplete, match=code) as caught:
        publish(app, id="e-1")
    assert (caught.value.event_id, caught.value.missing) == ("e-1", ("two",))
    faults.code = None
    publish(app, id=caught.value.event_id)
    assert taken(app, f"{unique_name}-two") == [task_id_for("e-1", "two")]
    twice = taken(app, app.conf.task_default_queue)
    assert twice == [task_id_for("e-1", "one")] * 2, "one id, so one of them runs"


# -- the mover -------------------------------------------------------------------------------


class Rows:
    """A schedule of these rows that notes what it is told."""

    def __init__(self, schedule):
        self.schedule, self.again = schedule, []
        self.take, self.done = schedule.take, schedule.done

    def give_back(self, token, ids, pause):
        self.again += [pause] * len(ids)
        self.schedule.give_back(token, ids, pause)


@pytest.fixture
def rows(app):
    return Rows(app._runtime.schedule)


@pytest.fixture
def mover(app, rows):
    publisher = SingleConnectionPublisher(app)
    yield Mover(
        due=rows, publish=publisher.publish, refuses=refuses, for_good=refuses_for_good,
        set_aside=pytest.fail, dead_letter=pytest.fail,
        chance=lambda: 0.5, stopping=lambda: False,
        monotonic=lambda: 0.0,  # however slow the machine is, a turn is not over before its rows
    )  # fmt: skip
    publisher.close()


def wait_in(app, *queues, body=b"[[1], {}, {}]"):
    now = datetime.now(UTC)
    for number, queue in enumerate(queues):
        app._runtime.schedule.put(row(queue, body), now - timedelta(seconds=len(queues) - number))


def row(queue, body=b"[[1], {}, {}]"):
    name = uuid.uuid4().hex
    return Message(
        body=body, content_type="application/json", content_encoding="utf-8",
        headers={"id": name, "task": "one"}, queue=queue, properties={"correlation_id": name},
    )  # fmt: skip


@pytest.mark.parametrize("code", AWAY)
def test_the_mover_takes_an_error_of_the_service_for_a_broker_that_is_away(
    app, faults, mover, rows, code
):
    wait_in(app, *[app.conf.task_default_queue] * 3)
    faults.code = code
    mover.turn()
    assert sorted(rows.again) == [timedelta(0), timedelta(0), AWAY_FOR]
    assert faults.asked["SendMessage"] <= 2, "no row is tried that cannot pass"
    faults.code = None
    wait_until(
        lambda: (
            mover.turn() and app._runtime.schedule.take("look", 9, timedelta(0)).next_in is None
        ),
        "all",
    )
    assert len(taken(app, app.conf.task_default_queue)) == 3


@pytest.mark.parametrize("code", [*REFUSED, None])
def test_the_mover_keeps_what_sqs_refuses_and_the_others_go_on(
    app, faults, mover, rows, unique_name, code
):
    if code:
        faults.code, faults.queue = code, f"{unique_name}-two"
        wait_in(app, f"{unique_name}-two", app.conf.task_default_queue)
    else:  # larger than SQS takes
        wait_in(app, f"{unique_name}-two", body=b"[[" + b"1," * 2**20 + b"1], {}, {}]")
        wait_in(app, app.conf.task_default_queue)
    mover.turn()
    assert rows.again == [REFUSED_FOR]
    assert len(taken(app, app.conf.task_default_queue)) == 1


# -- what the parent settles -------------------------------------------------------------------


def let_wait(app, envelope, done):
    """Settle a message that came before its time, which is now."""
    app._runtime.settlement.let_wait(
        envelope, datetime.now(UTC), lambda: done.append("sent"), lambda: None
    )


def time_out(app, envelope, done):
    """Settle what a time limit killed, with a copy that waits for no time."""
    error = TimeLimitExceeded(5)
    app._runtime.settlement.settle(envelope, [1], {}, error, lambda end: done.append(type(end)))


EACH_SETTLED = pytest.mark.parametrize(("settle", "end"), [(let_wait, "sent"), (time_out, Retried)])


def settle_one(app, settle, done):
    envelope = Envelope(
        uuid.uuid4().hex, app._runtime.owner, b"[[1], {}, {}]", "application/json", "utf-8",
        {"id": "t-1", "task": "one"}, {},
        {"exchange": "", "routing_key": app.conf.task_default_queue},
    )  # fmt: skip
    settle(app, envelope, done)


@EACH_SETTLED
@pytest.mark.parametrize("code", ["ExpiredToken", "RequestThrottled"])
def test_a_copy_is_held_while_sqs_takes_none_and_let_go_once_it_is_sent(
    app, faults, caplog, code, settle, end
):
    done = []
    faults.code = code
    settle_one(app, settle, done)
    wait_until(lambda: faults.asked["SendMessage"] >= 4, "it to be tried again")
    assert done == [], "nothing is acknowledged before"
    held = [r.getMessage() for r in caplog.records if r.getMessage().startswith("holding ")]
    assert len(held) == 1, "once a minute"
    assert f"{code}" in held[0]
    faults.code = None
    wait_until(lambda: done, "it to be sent")
    app._runtime.stop_settling()
    assert done == [end]
    assert taken(app, app.conf.task_default_queue) == ["t-1"]


@EACH_SETTLED
def test_a_copy_that_sqs_refuses_waits_in_the_store_and_holds_nobody(
    app, faults, caplog, settle, end
):
    done = []
    faults.code = "AccessDenied"
    settle_one(app, settle, done)
    wait_until(lambda: done, "it to be put")
    app._runtime.stop_settling()
    assert done == [end]
    assert taken(app, app.conf.task_default_queue) == []
    (waiting,) = app._runtime.schedule._waiting.values()
    assert read_row(waiting.row.text).id == "t-1"
    assert "copy_refused" in caplog.text
    assert "AccessDenied" in caplog.text
