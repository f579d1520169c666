"""RoadTracer: traces the runs of one task; Celery's own traces those that others listen to.

It stands for Celery's where a run has no listeners: no receivers of its signals, no hooks of the
task around it, no result to store. If such a run raises, and somebody listens to that, Celery's
tracer reports it: it calls the task once more, which raises the same (`RaisedInRun`) and runs
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

from billiard.einfo import ExceptionInfo
from celery import signals
from celery.app import trace
from celery.app.task import Context
from celery.app.trace import TraceInfo, task_has_custom, trace_ok_t
from celery.backends.base import Backend, DisabledBackend
from celery.exceptions import Ignore, Reject, Retry
from celery.loaders.base import BaseLoader
from celery.states import FAILURE, IGNORED, REJECTED, RETRY
from celery.utils.saferepr import saferepr
from kombu.utils.encoding import safe_repr

from angzarr.adapters.celery.claim_batch import LeftToAck
from angzarr.adapters.celery.envelope import FIELD, SETTLED, TOLD, custom_headers
from angzarr.adapters.celery.publish.sealed_sends import trace_of
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task_request import begin_task, end_task
from angzarr.adapters.celery.worker.unheard_error import UnheardError
from angzarr.delivery.batch_executor import SettledDelivery
from angzarr.delivery.completions import LeftCompletion
from angzarr.errors import GivenBack
from angzarr.events.headers import REQUEUED
from angzarr.payloads.claim_check import may_be_followed

#: The hooks of a task that Celery's tracer calls around a success.
_HOOKS: Final = ("before_start", "on_success", "after_return")


class Untold(BaseException):
    """Ends a trace without a result and without listeners."""


class RaisedInRun(NamedTuple):
    """What a run has raised, for Celery's tracer to report."""

    error: Exception


class RoadTracer:
    """Traces the runs of *task*; *celerys* is Celery's tracer for it."""

    def __init__(self, task: Any, celerys: Callable[[str, Any, Any, Any], Any]) -> None:
        self._task = task
        self._celerys = celerys
        self._shows_success = trace.logger.isEnabledFor(logging.INFO)

    def __call__(self, uuid: str, args: Any, kwargs: Any, request: Any = None) -> Any:
        """Trace; what fails in the loader or the result backend is the handler's error.

        Returns always: what a tracer raises would be acknowledged, or stick in a pool of threads.
        """
        if request is None or FIELD not in request:
            return self._celerys(uuid, args, kwargs, request)
        told: list[Any] = []  # True if the delivery was settled, or the completion that it left
        shown = {**request, TOLD: told, "headers": custom_headers(request)}
        if REQUEUED in request:  # by its own run before; a copy is new to the broker
            shown["delivery_info"] = {**request["delivery_info"], "redelivered": True}
        try:
            run = self._celerys if self._has_listeners(shown) else self._trace
            traced = trace_of(shown, run, uuid, args, kwargs, shown)
        except Untold:
            return _IGNORED
        except Exception as error:  # noqa: BLE001 - the result backend is away, for one
            traced = traced_as(FAILURE if told != [False] else REJECTED, error)
        settled: SettledDelivery | None = request.get(SETTLED)
        if settled is not None and not told:  # it ran with its batch, and was not told of
            if settled.given_back is not None:
                return traced_as(REJECTED, settled.given_back)
            settler = runtime_of(self._task.app).executor().settler
            told.append(settler.leave(settled.delivery, settled.outcome) or True)
        if told and isinstance(told[0], LeftCompletion):
            return self._leave(traced, told[0], request[FIELD], args, kwargs)
        failed = None if told or traced.info is None else traced.info.retval
        if not isinstance(failed, Exception) or isinstance(failed, Ignore):
            return traced
        return self._settle_unrun(traced, failed, request[FIELD], args, kwargs)

    def _has_listeners(self, request: dict[str, Any]) -> bool:
        """True if a step of Celery's tracer around the run does something."""
        if signals.task_prerun.receivers or signals.task_postrun.receivers:
            return True
        if not self._is_bare or request.get("chord") or may_be_followed(request):
            return True  # what is with a body that is yet to come may be such a step
        ignored = request.get("ignore_result")
        return self._stores and not (self._task.ignore_result if ignored is None else ignored)

    @cached_property
    def _is_bare(self) -> bool:
        """True if neither task nor app have code that Celery's tracer runs around a success."""
        task, app = self._task, self._task.app
        return (
            not any(task_has_custom(task, hook) for hook in _HOOKS)
            and _is(app.loader.on_task_init, BaseLoader.on_task_init)
            and _is(app.loader.on_process_cleanup, BaseLoader.on_process_cleanup)
            and _is(task.backend.process_cleanup, Backend.process_cleanup)
            and not app.conf.worker_deduplicate_successful_tasks
        )

    @cached_property
    def _stores(self) -> bool:
        """True if the result of a success goes anywhere."""
        backend = self._task.backend
        return not (
            _is(backend.mark_as_done, Backend.mark_as_done)
            and _is(backend.store_result, DisabledBackend.store_result)
        )

    def _trace(self, uuid: str, args: Any, kwargs: Any, shown: dict[str, Any]) -> Any:
        task, began = self._task, time.monotonic()
        request = Context(shown, args=args, called_directly=False, kwargs=kwargs)
        begin_task(task)
        task.request_stack.push(request)
        try:
            value = task.deliver(request, args, kwargs, ack_follows=True)
            return self._report(uuid, request, value, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - it is reported
            if shown[TOLD] not in ([], [False]) and self._is_unheard(request, error):
                return self._report_error(uuid, request, error)
            shown[TOLD].append(RaisedInRun(error))
        finally:
            end_task()
            task.request_stack.pop()
        return self._celerys(uuid, args, kwargs, vars(request))

    def _report(self, uuid: str, request: Any, value: Any, took: float) -> Any:
        """Tell of a success as Celery's tracer does; return what that returns."""
        task = self._task
        text = "None" if value is None else saferepr(value, task.resultrepr_maxsize)
        if signals.task_success.receivers:
            signals.task_success.send(sender=task, result=value, runtime=took)
        if self._shows_success:
            trace.info(
                trace.LOG_SUCCESS,
                {
                    "id": uuid,
                    "name": trace.get_task_name(request, task.name),
                    "return_value": text,
                    "runtime": took,
                    "args": request.get("argsrepr") or safe_repr(request.args),
                    "kwargs": request.get("kwargsrepr") or safe_repr(request.kwargs),
                },
            )
        return trace_ok_t(value, None, took, text)

    def _is_unheard(self, request: Any, error: Exception) -> bool:
        """True if only a log line and the worker's events tell of *error*, by which a run ended."""
        if self._hears_errors or isinstance(error, Reject | Ignore | MemoryError):
            return False
        if isinstance(error, Retry):
            return not signals.task_retry.receivers
        return not (signals.task_failure.receivers or request.chain or request.errbacks)

    @cached_property
    def _hears_errors(self) -> bool:
        """True if the task has code that Celery's tracer runs after a failure, or stores errors."""
        task, backend = self._task, self._task.backend
        return (
            task_has_custom(task, "on_retry")
            or task_has_custom(task, "on_failure")
            or task.store_errors_even_if_ignored
            or not _is(backend.mark_as_retry, Backend.mark_as_retry)
            or not _is(backend.mark_as_failure, Backend.mark_as_failure)
        )

    def _report_error(self, uuid: str, request: Any, error: Exception) -> Any:
        """Tell of *error* as Celery's tracer does; return what that returns."""
        told = UnheardError(error)
        is_retry = isinstance(error, Retry)
        state = TraceInfo(RETRY if is_retry else FAILURE, error)
        if self._shows_success and is_retry:
            name = trace.get_task_name(request, self._task.name)
            trace.info(trace.LOG_RETRY, {"id": uuid, "name": name, "exc": str(error)})
        elif self._shows_success:
            state._log_error(self._task, request, told)  # noqa: SLF001 - its line is Celery's
        trace.traceback_clear(error)
        return trace_ok_t(told, state, None, None)

    def _settle_unrun(self, traced: Any, failed: Exception, *run: Any) -> Any:
        """Settle what *failed* before its handler ran; what the machine lacked gives it back."""
        try:
            self._task.settle_unrun(failed, *run)
        except GivenBack as stop:
            return traced_as(REJECTED, stop)
        return traced

    def _leave(self, traced: Any, completion: LeftCompletion, *run: Any) -> Any:
        """Hand a completion to the parent; it goes with a success only, else it is made here."""
        if traced.info is None:
            left = LeftToAck.of(traced.retstr, completion)
            return trace_ok_t(traced.retval, None, traced.runtime, left)
        try:
            self._task.complete(completion, *run)
        except GivenBack as stop:
            return traced_as(REJECTED, stop)
        return traced


def _is(method: Any, function: Callable[..., Any]) -> bool:
    """True if *method* is *function*, bound."""
    return getattr(method, "__func__", None) is function


def traced_as(state: str, error: Exception) -> Any:
    """The tracer's return value for this end; REJECTED goes back to the broker."""
    told = Reject(error, requeue=True) if state == REJECTED else error
    try:
        raise told
    except type(told):
        info = ExceptionInfo(internal=True)
    return trace_ok_t(info, TraceInfo(state, told), 0.0, None)


#: What Celery's tracer returns for an Ignore; it says nothing of the delivery, so one serves all.
_IGNORED = traced_as(IGNORED, Ignore())
