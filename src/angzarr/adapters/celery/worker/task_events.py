"""Tells Celery's listeners how a delivery ended that the parent settled.

It does what a child's tracer does for a run: result, hooks, signals, events. The message is settled
by then, so a failure here is logged and changes nothing. The listeners of a task that never ran are
its result, the rest of its chain, its chord and its errbacks, as far as the message is sound.
Celery's own log line of a failed run shows the redacted text of the dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from billiard.einfo import ExceptionInfo
from celery import Celery, signals
from celery.app.task import Context
from celery.backends.rpc import RPCBackend
from celery.exceptions import NotRegistered, Retry, TaskRevokedError
from celery.states import FAILURE, READY_STATES, REVOKED
from celery.utils.saferepr import saferepr
from kombu.serialization import loads

from angzarr.adapters.celery.envelope import custom_headers
from angzarr.adapters.celery.message_check import checked_body, sound_fields
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.delivery import DeadLettered, Outcome, Retried
from angzarr.events.event import Message
from angzarr.runtime.json_bounds import Bounds, check_json

_log = logging.getLogger("angzarr.worker")


def announce_end(request: Any, outcome: Outcome | None) -> None:
    """Announce the end of *request* outside its child: failed for good, or retried."""
    match outcome:
        case DeadLettered(error=error):
            _each(_failed(request, error))
        case Retried(error=error, delay=delay):
            _each(_retried(request, Retry(exc=error, when=delay.total_seconds())))


def announce_buried(request: Any, error: Exception) -> None:
    """Announce the failure of *request*, whose message became a letter before it ran."""
    _each(_failed(request, error))


def announce_revoked(request: Any, outcome: Outcome | None, reason: str, **how: Any) -> None:
    """Announce that *request* was revoked or expired; one settled before keeps its result."""
    if not isinstance(outcome, DeadLettered):
        return
    backend, kept = request.task.backend, request.store_errors
    context = request._context  # noqa: SLF001 - as Celery's own parts do
    ended = TaskRevokedError(reason)
    _each([
        lambda: backend.mark_as_revoked(request.id, reason, request=context, store_result=kept),
        # Celery leaves the rest of its chain pending, and a chord around it without an end.
        lambda: backend._fail_chain(context.chain, ended, store_result=kept, state=REVOKED),  # noqa: SLF001
        lambda: request.send_event("task-revoked", **how),
        lambda: signals.task_revoked.send(sender=request.task, request=context, **how),
    ])  # fmt: skip


def context_of(fields: Mapping[str, Any], message: Any, args: Any, kwargs: Any) -> Context:
    """Celery's request, with *fields*, for *message*, whose task does not run."""
    return Context(
        fields,
        args=args,
        kwargs=kwargs,
        correlation_id=message.properties.get("correlation_id"),
        reply_to=message.properties.get("reply_to"),
        delivery_info={},
        headers=custom_headers(message.headers),
    )


def announce_unknown(consumer: Any, message: Any, error: Exception) -> None:
    """Announce that *message* names a task that is not registered here."""
    name, task_id = message.headers["task"], message.headers["id"]
    args, kwargs, embed = checked_body(message.payload)
    # Celery looks at none of what the body embeds: chain, chord and errbacks would wait for ever.
    request = context_of({**message.headers, **(embed or {})}, message, args, kwargs)
    dispatcher = consumer.event_dispatcher
    failed = NotRegistered(name)
    steps: list[Callable[[], object]] = [
        lambda: consumer.app.backend.mark_as_failure(task_id, failed, request=request),
        lambda: signals.task_unknown.send(
            sender=consumer, message=message, exc=error, name=name, id=task_id
        ),
    ]
    if dispatcher:
        steps.append(
            lambda: dispatcher.send("task-failed", uuid=task_id, exception=saferepr(failed))
        )
    _each(steps)


def _failed(request: Any, error: Exception) -> list[Callable[[], object]]:
    task, context, info = request.task, request._context, _info(error)  # noqa: SLF001
    run = (request.id, request.args, request.kwargs)
    return [
        lambda: task.backend.mark_as_failure(
            request.id, error, request=context, store_result=request.store_errors
        ),
        lambda: task.on_failure(error, *run, info),
        lambda: task.after_return(FAILURE, error, *run, info),
        lambda: signals.task_failure.send(
            sender=task, task_id=request.id, exception=error, args=request.args,
            kwargs=request.kwargs, traceback=info.traceback, einfo=info,
        ),
        lambda: request.send_event(
            "task-failed", exception=saferepr(error), traceback=info.traceback
        ),
    ]  # fmt: skip


def _retried(request: Any, reason: Retry) -> list[Callable[[], object]]:
    task, context, info = request.task, request._context, _info(reason.exc)  # noqa: SLF001
    backend = task.backend
    return [
        # The copy is out, and may have ended: its end stays.
        lambda: (
            _has_ended(backend, request.id)
            or backend.mark_as_retry(request.id, reason.exc, info.traceback, request=context)
        ),
        lambda: task.on_retry(reason.exc, request.id, request.args, request.kwargs, info),
        lambda: signals.task_retry.send(sender=task, request=context, reason=reason, einfo=info),
        lambda: request.send_event(
            "task-retried", exception=saferepr(reason.exc), traceback=info.traceback
        ),
    ]


def _info(error: Exception) -> Any:
    try:
        raise error
    except type(error):
        return ExceptionInfo()


def _each(steps: list[Callable[[], object]]) -> None:
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a result backend away, a hook that raises
            _log.warning(
                "not_announced: the message is settled; Celery's events lack it: %r", error
            )


_JSON: Final = "application/json"
#: What a body embeds, by which others wait.
_FOLLOWERS: Final = ("callbacks", "errbacks", "chain", "chord")


def tell_lost(app: Celery, message: Message, error: Exception) -> None:
    """Report the task of *message* as failed with *error* to its waiters; never raises.

    A task that has a result keeps it: its end is announced once.
    """
    try:
        request = _request_of(message, runtime_of(app).bounds)
        if request is not None:
            _tell(app, request, error)
    except Exception as failed:  # noqa: BLE001 - a result backend away, a hook that raises
        _log.warning("not_announced: the letter of task %r is kept: %r", message.id, failed)


def _tell(app: Celery, request: Context, error: Exception) -> None:
    task = app.tasks.get(request.task)
    backend = app.backend if task is None else task.backend
    if _has_ended(backend, request.id):
        return
    ignored = request.ignore_result
    if task is not None:
        ignored = task.ignore_result if ignored is None else ignored
        ignored = ignored and not task.store_errors_even_if_ignored
    backend.mark_as_failure(request.id, error, request=request, store_result=not ignored)


def _has_ended(backend: Any, task_id: str) -> bool:
    """True if the task has its result; False also if the backend cannot be asked."""
    if isinstance(backend, RPCBackend):  # each asks a queue of its own
        return False
    try:
        return backend.get_state(task_id) in READY_STATES
    except NotImplementedError:  # results are disabled
        return False


def _request_of(message: Message, bounds: Bounds) -> Context | None:
    """The sound parts of the request; None if it does not name its task."""
    said = sound_fields(message.headers)
    if not said.get("id") or not isinstance(message.headers.get("task"), str):
        return None
    args, kwargs, embed = _body_of(message, bounds)
    follows = {name: value for name, value in sound_fields(embed).items() if name in _FOLLOWERS}
    return context_of({**said, **follows, "task": message.task}, message, args, kwargs)


def _body_of(message: Message, bounds: Bounds) -> tuple[Any, Any, Mapping[str, Any]]:
    """The args, kwargs and embed as far as they are sound; each may be empty."""
    nothing: tuple[Any, Any, Mapping[str, Any]] = ((), {}, {})
    if message.content_type != _JSON:
        return nothing
    try:
        check_json(message.body, bounds)
        body = loads(message.body, _JSON, message.content_encoding, accept={_JSON})
    except Exception as error:  # noqa: BLE001 - a hostile body fails in any way
        _log.debug("followers_unknown: of task %r: %r", message.id, error)
        return nothing
    try:
        args, kwargs, embed = checked_body(body)
    except Exception:  # noqa: BLE001 - its arguments do not fit; what follows it may
        embed = body[-1] if isinstance(body, list) and body else None
        return ((), {}, embed) if isinstance(embed, dict) else nothing
    return args, kwargs, embed or {}


#: Where Celery's tracer says how a task ended.
_LOGGER: Final = "celery.app.trace"


class ShownError(NamedTuple):
    """The text that the log may show of the failure of one task."""

    task_id: str
    text: str


_SHOWN: ContextVar[ShownError | None] = ContextVar("angzarr_shown_error", default=None)


class ErrorLogFilter(logging.Filter):
    """Puts what `show_error` was last given here into the line about the same task."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass; one about an error that hides something says less."""
        shown, said = _SHOWN.get(), record.args
        if shown is not None and isinstance(said, Mapping) and said.get("id") == shown.task_id:
            _SHOWN.set(None)
            record.args = {**said, "exc": shown.text, "traceback": ""}
            record.exc_info = None
            if hasattr(record, "data"):
                record.data = record.args
        return True


_FILTER: Final = ErrorLogFilter()


def install_error_log() -> None:
    """Let errors be shown so in this process and those that it forks; again changes nothing."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)


def show_error(task_id: str, text: str, stack: str = "") -> None:
    """Set the text of the next line about the task; used only after `install_error_log`."""
    _SHOWN.set(ShownError(task_id, f"{text}\n{stack}".strip()))
