"""An app on the memory broker, and what it sent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


@pytest.fixture
def app(make_app):
    return make_app()


@pytest.fixture
def sent(app):
    """Take what waits in a queue of the memory broker."""

    def take(queue=None):
        taken = []
        with app.connection_for_read() as connection:
            simple = connection.SimpleQueue(app.amqp.queues[queue or app.conf.task_default_queue])
            while simple.qsize():
                message = simple.get_nowait()
                message.ack()
                taken.append(message)
            simple.close()
        return taken

    return take


@pytest.fixture
def waiting(app):
    """Return the messages that wait in the app's schedule."""
    from angzarr.delivery.schedule import read_row

    return lambda: [read_row(one.row.text) for one in app._runtime.schedule._waiting.values()]


@pytest.fixture
def in_task(app):
    """Run a call as if a worker ran *task* with these request fields."""
    from celery._state import _task_stack

    def run(task, call, **request):
        task.push_request(called_directly=False, **request)
        _task_stack.push(task)
        try:
            return call(task.request)
        finally:
            _task_stack.pop()
            task.pop_request()

    return run


@pytest.fixture
def delivery_of():
    """A delivery as far as followers look at it."""

    def make(task_id="task-1", priority=None, pins=None):
        return SimpleNamespace(
            message=SimpleNamespace(id=task_id, priority=priority),
            event=SimpleNamespace(config_pins=pins or {}),
        )

    return make
