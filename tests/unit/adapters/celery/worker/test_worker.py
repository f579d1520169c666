"""The mover's thread and its connection: of one process, with nothing that others share."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from amqp.exceptions import MessageNacked, PreconditionFailed
from kombu.exceptions import OperationalError

from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher, refuses
from angzarr.adapters.celery.worker.worker import MoverThread
from angzarr.adapters.memory.schedule import MemorySchedule
from angzarr.adapters.redis.schedule import RedisSchedule
from angzarr.adapters.sql.delivery.schedule import SqlSchedule
from angzarr.errors import BrokerUnavailable
from angzarr.events.event import Message
from polling import wait_until


def message(queue, name="task-1"):
    return Message(
        body=b"[[1], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": name, "task": "t"}, queue=queue, properties={"correlation_id": name},
    )  # fmt: skip


@pytest.fixture
def mover(app):
    thread = MoverThread(
        app._runtime.schedule, SingleConnectionPublisher(app), pytest.fail, pytest.fail
    )
    thread.start()
    yield thread
    thread.end()


def test_a_workers_life_moves_what_is_due_to_its_own_queue(app, sent):
    app._runtime.begin_work()
    try:
        app._runtime.schedule.put(message(app.conf.task_default_queue), datetime.now(UTC))
        (got,) = wait_until(sent)
    finally:
        app._runtime.end_work()
    assert got.headers == {"id": "task-1", "task": "t"}
    assert got.properties["correlation_id"] == "task-1"


def test_what_waits_in_this_process_outlives_one_worker_of_it(app, sent):
    app._runtime.begin_work()
    app._runtime.schedule.put(
        message(app.conf.task_default_queue), datetime.now(UTC) + timedelta(seconds=1)
    )
    app._runtime.end_work()
    assert sent() == []
    app._runtime.begin_work()
    try:
        assert len(wait_until(sent)) == 1
    finally:
        app._runtime.end_work()


def test_a_wait_of_less_than_a_second_is_kept_within_it(app, mover, sent):
    began = time.monotonic()
    due = datetime.now(UTC) + timedelta(seconds=0.25)
    app._runtime.schedule.put(message(app.conf.task_default_queue), due)
    assert wait_until(sent)
    assert time.monotonic() - began > 0.24


def test_a_forked_child_ends_no_mover(mover, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: mover._pid + 1)
    mover.end()
    monkeypatch.undo()
    assert mover._thread.is_alive()


def test_it_uses_no_pool_that_children_inherit(app, sent, monkeypatch):
    monkeypatch.setattr(type(app), "producer_pool", property(lambda _: pytest.fail("the pool")))
    publisher = SingleConnectionPublisher(app)
    publisher.publish(message(app.conf.task_default_queue))
    publisher.publish(message(app.conf.task_default_queue, "task-2"))
    publisher.close()
    assert len(sent()) == 2


@pytest.mark.parametrize(
    ("error", "kept"), [(MessageNacked("full"), True), (ConnectionResetError("gone"), False)]
)
def test_a_connection_that_broke_is_replaced_and_one_that_is_well_is_kept(
    app, monkeypatch, error, kept
):
    publisher = SingleConnectionPublisher(app)
    publisher.publish(message(app.conf.task_default_queue))
    before = publisher._connection
    with monkeypatch.context() as patch:
        patch.setattr("kombu.messaging.Producer.publish", _raiser(error))
        with pytest.raises(BrokerUnavailable):
            publisher.publish(message(app.conf.task_default_queue))
    assert (publisher._connection is before) is kept
    publisher.publish(message(app.conf.task_default_queue))
    publisher.close()


def _raiser(error):
    def refuse(*_args, **_options):
        raise error

    return refuse


def _unavailable(*causes):
    error: BaseException = BrokerUnavailable("no")
    first = error
    for cause in causes:
        error.__cause__ = cause
        error = cause
    return first


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (_unavailable(MessageNacked("full")), True),
        (_unavailable(OperationalError("x"), PreconditionFailed("other arguments")), True),
        (_unavailable(OperationalError("x"), ConnectionResetError("gone")), False),
        (_unavailable(), False),
        (TypeError("x"), False),
    ],
)
def test_a_refusal_of_one_message_is_told_from_a_broker_that_is_away(error, refused):
    assert refuses(error) is refused


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"broker": "memory://", "store": "memory://"}, MemorySchedule),
        ({"broker": "memory://", "store": "redis://127.0.0.1:1"}, MemorySchedule),
        ({"broker": "redis://127.0.0.1:1", "store": None}, RedisSchedule),
        ({"broker": "amqp://127.0.0.1:1", "store": "redis://127.0.0.1:1"}, RedisSchedule),
        ({"broker": "sqs://", "store": "postgresql://127.0.0.1:1/x"}, SqlSchedule),
        ({"broker": "filesystem://", "store": "sqlite:///x.db"}, SqlSchedule),
    ],
)
def test_delays_live_where_the_claims_do_or_where_the_only_process_is(make_app, options, kind):
    app = make_app(**options)
    assert type(app._runtime.schedule) is kind
    app._runtime.schedule.close()


def test_a_schedule_on_sqlite_waits_for_the_disk(make_app, tmp_path):
    app = make_app(broker="filesystem://", store=f"sqlite:///{tmp_path / 'x.db'}")
    with app._runtime.schedule._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    app._runtime.schedule.close()
