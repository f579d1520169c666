"""Our tracer and Celery's tell the same of a run, and neither runs it twice."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager

import pytest
from celery import signals
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, Reject
from celery.loaders.base import BaseLoader
from tests.unit.adapters.celery import child

from angzarr.adapters.celery.worker.tracer import RoadTracer
from angzarr.errors import GiveUp, RetryLater, Skip


def succeed():
    return {"total": [1, "é", None]}


def nothing():
    """Return None."""


def fail():
    msg = "a bug"
    raise ValueError(msg)


def be_away():
    raise ConnectionResetError("away")


ENDS = {
    "a value": succeed, "no value": nothing, "a bug": fail, "a retry": be_away,
    "skipped": lambda: (_ for _ in ()).throw(Skip("not ours")),
    "given up": lambda: (_ for _ in ()).throw(GiveUp("never")),
    "asked for a retry": lambda: (_ for _ in ()).throw(RetryLater(5)),
    "ignored": lambda: (_ for _ in ()).throw(Ignore()),
    "rejected": lambda: (_ for _ in ()).throw(Reject("no", requeue=False)),
}  # fmt: skip


@contextmanager
def heard(signal):
    """What *signal* says meanwhile."""
    said = []

    def hear(**given):
        said.append({name: given[name] for name in given if name not in {"signal", "sender"}})

    signal.connect(hear, weak=False)
    try:
        yield said
    finally:
        signal.disconnect(hear)


def told_of(make_app, call, *, listened):
    """What parent, listeners and hooks are told of a run of *call*, and how often it ran."""
    app, runs, hooks = make_app(facts={"log": False}), [], []

    class Base(app.Task):
        abstract = True

        def on_failure(self, exc, *_):
            hooks.append((repr(exc), self.request.noted))

        def on_retry(self, exc, *_):
            hooks.append((repr(exc), self.request.noted))

    def run(self):
        runs.append(self.request.id)
        self.request.noted = "by the run"
        return call()

    task = app.task(name="t", bind=True, base=Base, lazy=False)(run)
    app._runtime.begin_work()
    try:
        with heard(signals.task_failure) as failures, heard(signals.task_retry) as retries:
            if listened:
                with heard(signals.task_prerun):
                    told = child.traced(task, task_id="one")
            else:
                told = child.traced(task, task_id="one")
    finally:
        app._runtime.end_work()
    state = told.info and (told.info.state, type(told.info.retval), _text(told.info.retval))
    said = [_text(one.get("exception", one.get("reason"))) for one in (*failures, *retries)]
    shown = told.retval if told.info is None else type(told.retval)
    return {
        "state": state, "value": shown, "text": told.retstr, "hooks": hooks, "signals": said,
        "runs": runs,
    }  # fmt: skip


def _text(error):
    return re.sub(r"in [\d.]+s", "in some seconds", str(error))


@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS)
def test_both_tracers_tell_the_same(make_app, call, monkeypatch):
    run_by = []
    real = RoadTracer._trace
    monkeypatch.setattr(RoadTracer, "_trace", lambda *run: (run_by.append("ours"), real(*run))[1])
    theirs = told_of(make_app, call, listened=True)
    assert run_by == []
    ours = told_of(make_app, call, listened=False)
    assert run_by == ["ours"]
    assert ours == theirs
    assert ours["runs"] == ["one"]


@pytest.fixture
def task(make_app):
    app = make_app(facts={"log": False})
    app._runtime.begin_work()
    yield app.task(name="t", lazy=False)(succeed)
    app._runtime.end_work()


def test_receivers_of_a_success_hear_of_it(task):
    with heard(signals.task_success) as said:
        child.traced(task)
    ((told,),) = [said]
    assert told["result"] == succeed()
    assert told["runtime"] > 0


def test_the_line_of_a_success_is_celerys(task, caplog):
    caplog.set_level(logging.INFO, "celery.app.trace")
    child.traced(task)
    with heard(signals.task_prerun):
        child.traced(task)
    ours, theirs = (one for one in caplog.records if one.name == "celery.app.trace")
    assert ours.msg == theirs.msg
    assert ours.data.keys() == theirs.data.keys()
    same = ours.data.keys() - {"id", "runtime"}
    assert {name: ours.data[name] for name in same} == {name: theirs.data[name] for name in same}


def _loader(app):
    class Loader(BaseLoader):
        def on_task_init(self, *_):
            self.app.noted = True

    app.loader = Loader(app)


def _hook(task):
    type(task).on_success = lambda *_: None


LISTENERS = {
    "a loader": lambda task: _loader(task.app),
    "a hook": _hook,
    "stored results": lambda task: setattr(task.app.backend, "store_result", lambda *_, **__: None),
    "its own end": lambda task: setattr(task.app.backend, "process_cleanup", lambda: None),
    "known successes": lambda task: task.app.conf.update(worker_deduplicate_successful_tasks=True),
}


@pytest.mark.parametrize("listen", LISTENERS.values(), ids=LISTENERS)
def test_celerys_tracer_runs_what_somebody_listens_to(task, listen, monkeypatch):
    hook = "on_success" in vars(type(task))
    listen(task)
    monkeypatch.setattr(RoadTracer, "_trace", lambda *_: pytest.fail("ours ran it"))
    try:
        tracer = RoadTracer(task, build_tracer(task.name, task, task.app.loader, app=task.app))
        assert tracer._has_listeners({})
    finally:
        if not hook and "on_success" in vars(type(task)):
            del type(task).on_success


@pytest.mark.parametrize(
    ("request_", "listens"),
    [({}, False), ({"chord": {"task": "t"}}, True), ({"ignore_result": True}, False)],
)
def test_a_chord_listens(task, request_, listens):
    tracer = RoadTracer(task, build_tracer(task.name, task, task.app.loader, app=task.app))
    assert tracer._has_listeners(request_) is listens
