"""Course: every message goes once through all that a worker's parent and child do with it."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from celery.app import trace
from celery.utils.imports import symbol_by_name
from celery.worker.request import create_request_cls

from profiles.sides import NAME, Side

#: What Celery's asynpool and its children send each other, around the job's own arguments.
JOB, READY = 2, 3
#: How many messages one fetch brings.
FETCH = 8


class Took(NamedTuple):
    """Microseconds per event of each step, and bytes from parent to child and back."""

    claim: float
    request: float
    pickle: float
    unpickle: float
    trace: float
    reply: float
    end: float
    sent: float
    returned: float


class Round:
    """One round over all messages of a side. *around* is called with the child's whole work."""

    def __init__(self, side: Side, around: Callable[..., Any]) -> None:
        self._side = side
        self._around = around
        self._messages = side.messages()
        self._requests: list[Any] = []
        self._sent: list[bytes] = []
        self.told: list[Any] = []
        self._returned: list[bytes] = []
        trace.setup_worker_optimizations(side.app, "host")
        side.task.__trace__ = trace.build_tracer(
            NAME, side.task, side.app.loader, "host", app=side.app
        )
        base = symbol_by_name(side.task.Request)
        pool = SimpleNamespace(apply_async=None)
        self._request = create_request_cls(base, side.task, pool, "host", None, app=side.app)
        side.forget()

    def run(self) -> Took:
        """Take every step with all messages, one step after the other."""
        steps: list[Callable[[], None]] = [
            self._claim,
            self._make_requests,
            self._send,
            self._receive,
            self._work,
            self._reply,
            self._end,
        ]
        spans = [_timed(step) / len(self._messages) for step in steps]
        spans[4] -= spans[3]  # a child takes one job at a time: both at once
        sizes = [sum(map(len, sent)) for sent in (self._sent, self._returned)]
        return Took(*spans, *(size / len(self._messages) for size in sizes))

    def _claim(self) -> None:
        claim = self._side.claim
        if claim is not None:
            for start in range(0, len(self._messages), FETCH):
                claim(self._messages[start : start + FETCH])

    def _make_requests(self) -> None:
        app, task = self._side.app, self._side.task
        self._requests = [
            self._request(
                message,
                app=app,
                hostname="host",
                task=task,
                on_ack=_acknowledge,
                body=message.body,
                headers=message.headers,
                decoded=False,
            )
            for message in self._messages
        ]

    def _send(self) -> None:
        for number, one in enumerate(self._requests):
            job = (
                one.type, one.id, one.request_dict, one.body, one.content_type,
                one.content_encoding,
            )  # fmt: skip
            call: tuple[object, ...] = (number, None, trace.fast_trace_task, job, {})
            self._sent.append(pickle.dumps((JOB, call), pickle.HIGHEST_PROTOCOL))

    def _receive(self) -> None:
        for data in self._sent:
            pickle.loads(data)  # noqa: S301 - our own

    def _work(self) -> None:
        self._around(lambda: self.told.extend(self._results()))

    def _results(self) -> Iterator[Any]:
        for data in self._sent:
            _, (_, _, call, job, _) = pickle.loads(data)  # noqa: S301 - our own
            result = call(*job)
            yield result

    def _reply(self) -> None:
        for number, result in enumerate(self.told):
            reply = (READY, (number, None, (True, result), 0))
            self._returned.append(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))

    def _end(self) -> None:
        for request, data in zip(self._requests, self._returned, strict=True):
            _, (_, _, (_, result), _) = pickle.loads(data)  # noqa: S301 - our own
            request.on_success(result)


def _acknowledge(*_given: Any) -> None:
    pass


def one_round(side: Side, around: Callable[..., Any] = lambda call: call()) -> Took:
    """Run one round and return what it took."""
    one = Round(side, around)
    took = one.run()
    assert not any(failed for failed, *_ in one.told), one.told
    return took


def _timed(call: Callable[[], None]) -> float:
    """Return the CPU time of *call* in microseconds."""
    gc.collect()
    gc.freeze()  # what this program keeps is not what a worker keeps
    began = time.thread_time_ns()
    call()
    took = time.thread_time_ns() - began
    gc.unfreeze()
    return took / 1000
