"""A batch in the process that runs it: Celery is told the end of each event, and runs nothing."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from celery.app.trace import build_tracer, trace_task_ret
from kombu.utils.json import dumps
from tests.unit.adapters.celery.worker.test_task_classes import waiting_letters

from angzarr import GiveUp
from angzarr.adapters.celery.envelope import FIELD, Envelope
from angzarr.adapters.celery.worker.batch_job import run_batch
from angzarr.delivery import Batch, BatchResult
from angzarr.delivery.batch_executor import BatchExecutor
from angzarr.resilience.idempotency import Claim, key_for

calls: list[list[int]] = []


@pytest.fixture(params=["cache+memory://"])
def task(request, make_app):
    """A batch handler that gives up 2 and fails 3 for now."""
    calls.clear()
    app = make_app("batches", backend=request.param)

    @app.handler("Numbered", batch=Batch(size=10, wait=1), name="h", track_started=True)
    def handle(numbers: list[int]) -> BatchResult:
        calls.append(numbers)
        errors = {2: GiveUp("never"), 3: ConnectionError("down")}
        return BatchResult({n: errors[one] for n, one in enumerate(numbers) if one in errors})

    app.finalize(auto=True)
    app.set_current()
    handle.__trace__ = build_tracer(handle.name, handle, app.loader, "host", app=app)
    app._runtime.begin_work()
    yield handle
    app._runtime.end_work()


def claimed_call(task, number, name=None):
    """Return what a parent sends for a message that was claimed with its fetch."""
    name, request, body = call(task, number, name)
    envelope = request[FIELD]
    store = task.app._parts.claims.store
    claim = Claim(key=key_for(task.name, name), token=envelope.token, owner=envelope.owner)
    (answer,) = store.claim([replace(claim, counted=False)])
    return name, {**request, FIELD: envelope._replace(answer=answer)}, body


def call(task, number, name=None):
    """Return what a parent sends for one message."""
    name = name or str(uuid.uuid4())
    headers = {"id": name, "task": task.name}
    envelope = Envelope(
        uuid.uuid4().hex, task.app._runtime.owner, dumps([[number], {}, {}]),
        "application/json", "utf-8", headers, {}, {"routing_key": "q", "redelivered": False},
    )  # fmt: skip
    request = {**headers, FIELD: envelope, "delivery_info": {}, "retries": 0}
    return name, request, ([number], {}, {})


def test_each_event_is_told_its_own_end_after_one_call(task):
    sent, before = [call(task, number) for number in range(4)], len(waiting_letters(task.app))
    failed, ends, _took = run_batch(trace_task_ret, task.name, sent)
    assert failed == 0
    assert calls == [[0, 1, 2, 3]]
    assert [end[0] for end in ends] == [0, 0, 1, 1]
    found = [task.app.AsyncResult(name).state for name, *_ in sent]
    assert found == ["SUCCESS", "SUCCESS", "FAILURE", "RETRY"]
    assert len(waiting_letters(task.app)) == before + 1


@pytest.mark.parametrize("task", [None], indirect=True)
def test_what_fails_before_celery_hears_of_an_end_makes_no_failure_of_it(task):
    """Its claim is left to the acknowledgement: to settle it again would fail a handled event."""

    def fail(*_what):
        raise OSError("no file is left")

    task.app.loader.on_task_init = fail
    task.__trace__ = build_tracer(task.name, task, task.app.loader, "host", app=task.app)
    sent, before = [claimed_call(task, number) for number in range(2)], waiting_letters(task.app)
    run_batch(trace_task_ret, task.name, sent)
    assert calls == [[0, 1]]
    assert len(waiting_letters(task.app)) == len(before)
    run_batch(
        trace_task_ret, task.name, [claimed_call(task, n, one[0]) for n, one in enumerate(sent)]
    )
    assert calls == [[0, 1]], "the claims are completed"


def test_a_bug_of_ours_has_the_events_run_one_by_one(task, monkeypatch):
    def fail(*_what):
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(BatchExecutor, "take", fail)
    _failed, ends, _took = run_batch(trace_task_ret, task.name, [call(task, n) for n in range(2)])
    assert calls == [[0], [1]]
    assert [end[0] for end in ends] == [0, 0]


def test_a_worker_that_stops_gives_all_back(task):
    task.app._runtime.stopping.close()
    _failed, ends, _took = run_batch(trace_task_ret, task.name, [call(task, n) for n in range(2)])
    assert calls == []
    assert [end[0] for end in ends] == [1, 1]
    assert {type(end[1].exception.exc).__name__ for end in ends} == {"Reject"}
