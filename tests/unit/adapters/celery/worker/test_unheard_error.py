"""Where no code listens to a failed run, its error is told as Celery tells it, and for less."""

from __future__ import annotations

import logging
import pickle
import re
from functools import partial
from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from celery import signals
from celery.concurrency.base import apply_target
from celery.worker.request import create_request_cls
from kombu.utils.json import dumps
from tests.unit.adapters.celery import child

from angzarr.adapters.celery.worker.request import AngzarrRequest
from angzarr.adapters.celery.worker.unheard_error import UnheardError
from angzarr.errors import GiveUp, RetryLater


def fail():
    msg = "a bug"
    raise ValueError(msg)


def give_up():
    never = "never"
    raise GiveUp(never)


def be_away():
    raise ConnectionResetError("away")


def ask_for_a_retry():
    raise RetryLater(5)


ENDS = [fail, give_up, be_away, ask_for_a_retry]


@pytest.fixture
def app(make_app):
    app = make_app(facts={"log": False})
    app._runtime.begin_work()
    yield app
    app._runtime.end_work()


def task_of(app, call):
    return app.task(name="t", lazy=False)(call)


def _text(error):
    return re.sub(r"in [\d.]+s", "in some seconds", str(error))


@pytest.fixture
def hear():
    """Listen to a signal until the test ends."""
    connected = []

    def listen(**_said):
        """Hear it."""

    def connect(signal):
        signal.connect(listen, weak=False)
        connected.append(signal)

    yield connect
    for signal in connected:
        signal.disconnect(listen)


@pytest.mark.parametrize("call", ENDS)
def test_an_error_that_is_unheard_is_told_as_celery_tells_it(app, call, hear, caplog):
    caplog.set_level(logging.INFO, "celery.app.trace")
    task = task_of(app, call)
    ours = child.traced(task)
    hear(signals.task_postrun)
    theirs = child.traced(task)
    assert type(ours.retval) is UnheardError
    assert type(theirs.retval) is ExceptionInfo
    assert (ours.info.state, type(ours.info.retval)) == (
        theirs.info.state,
        type(theirs.info.retval),
    )
    assert _text(ours.info.retval) == _text(theirs.info.retval)
    last = [_text(told.retval.traceback.splitlines()[-1]) for told in (ours, theirs)]
    assert last[0] == last[1]
    one, other = (record for record in caplog.records if record.name == "celery.app.trace")
    assert (one.levelname, one.msg, one.data.keys()) == (
        other.levelname,
        other.msg,
        other.data.keys(),
    )
    assert _text(one.data["exc"]) == _text(other.data["exc"])


LISTENERS = {
    "a receiver of retries": lambda _task, hear: hear(signals.task_retry),
    "a receiver of failures": lambda _task, hear: hear(signals.task_failure),
    "a hook for retries": lambda task, _hear: setattr(type(task), "on_retry", lambda *_: None),
    "a hook for failures": lambda task, _hear: setattr(type(task), "on_failure", lambda *_: None),
    "stored errors": lambda task, _hear: setattr(task, "store_errors_even_if_ignored", True),
    "a backend of retries": lambda task, _hear: setattr(
        task.backend, "mark_as_retry", lambda *_, **__: None
    ),
    "a backend of failures": lambda task, _hear: setattr(
        task.backend, "mark_as_failure", lambda *_, **__: None
    ),
}


@pytest.mark.parametrize("listen", LISTENERS.values(), ids=LISTENERS)
def test_celery_tells_those_who_listen_to_errors(app, listen, hear):
    told = []
    for call in (fail, be_away):
        task = app.task(name=call.__name__, lazy=False)(call)
        listen(task, hear)
        told.append(type(child.traced(task).retval))
    assert ExceptionInfo in told


@pytest.mark.parametrize("embedded", [{"errbacks": [{"task": "t"}]}, {"chain": [{"task": "t"}]}])
def test_what_follows_a_failure_is_told_by_celery(app, embedded, monkeypatch):
    told = []
    monkeypatch.setattr(app.backend, "_call_task_errbacks", lambda *_: told.append("errbacks"))
    monkeypatch.setattr(app.backend, "_fail_chain", lambda *_, **__: told.append("chain"))
    task = task_of(app, fail)
    assert type(child.traced(task, headers=embedded).retval) is ExceptionInfo
    assert set(embedded) <= set(told)


class Closed(Exception):
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("it has a socket")


@pytest.mark.parametrize("error", [ValueError("no"), Closed("no")])
def test_another_process_gets_the_text_and_what_pickle_can_carry(error):
    try:
        raise error
    except type(error):
        told = UnheardError(error)
    sent = pickle.loads(pickle.dumps(told))  # noqa: S301 - our own
    assert type(sent) is ExceptionInfo
    assert sent.traceback == told.traceback
    assert "test_another_process_gets_the_text" in sent.traceback
    assert "no" in str(sent.exception)


class Eventer:
    """Celery's dispatcher of events."""

    def __init__(self, *, enabled, groups):
        self.enabled, self.groups, self.sent = enabled, groups, []

    def send(self, kind, **fields):
        self.sent.append((kind, fields["exception"], fields["traceback"].splitlines()[-1]))


EVENTERS = {
    "no events": (None, False),
    "off": (Eventer(enabled=False, groups=set()), False),
    "of workers": (Eventer(enabled=True, groups={"worker"}), False),
    "of tasks": (Eventer(enabled=True, groups={"worker", "task"}), True),
    "of all": (Eventer(enabled=True, groups=set()), True),
}


@pytest.mark.parametrize("call", [fail, be_away])
@pytest.mark.parametrize(("eventer", "is_shown"), EVENTERS.values(), ids=EVENTERS)
def test_a_failed_run_is_acknowledged_and_shown_to_who_asked_for_events(
    app, call, eventer, is_shown, monkeypatch
):
    if eventer is not None:
        eventer.sent.clear()
    task = task_of(app, call)
    task.send_events = True
    told, acknowledged, written = child.traced(task), [], []
    real = UnheardError.traceback.fget
    monkeypatch.setattr(
        UnheardError, "traceback", property(lambda info: (written.append(info), real(info))[1])
    )
    message = SimpleNamespace(
        headers={"id": "one", "task": "t"}, body=dumps([[], {}, {}]), payload=[[], {}, {}],
        content_type="application/json", content_encoding="utf-8", properties={},
        delivery_info={}, acknowledged=False,
    )  # fmt: skip
    kind = create_request_cls(
        AngzarrRequest, task, SimpleNamespace(apply_async=None), "host", eventer, app=app
    )
    request = kind(
        message, app=app, task=task, on_ack=lambda *_: acknowledged.append(True), eventer=eventer
    )
    apply_target(lambda: (1, told.retval, None), callback=partial(kind.on_success, request))
    assert acknowledged == [True]
    assert bool(written) is is_shown
    if is_shown:
        kinds = {fail: "task-failed", be_away: "task-retried"}
        ((sent, exception, last),) = eventer.sent
        assert sent == kinds[call]
        assert exception in {"ValueError('a bug')", "ConnectionResetError('away')"}
        assert exception.split("'")[1] in last
