"""Announce: tell Celery's world how a delivery ended that the parent settled.

What a child's tracer does for a run: result, hooks, signals, events. The message is settled by
then: whatever fails here is logged and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals
from celery.app.task import Context
from celery.exceptions import NotRegistered, Retry, TaskRevokedError
from celery.states import FAILURE, REVOKED
from celery.utils.saferepr import saferepr

from angzarr.adapters.celery.message_check import checked_body
from angzarr.adapters.celery.publish.custom_headers import custom_headers
from angzarr.delivery.outcome import DeadLettered, Outcome, Retried

_log = logging.getLogger("angzarr.worker")


def announce_end(request: Any, outcome: Outcome | None) -> None:
    """Tell what became of *request*, which ended outside its child: failed for good, or retried."""
    match outcome:
        case DeadLettered(error=error):
            _each(_failed(request, error))
        case Retried(error=error, delay=delay):
            _each(_retried(request, Retry(exc=error, when=delay.total_seconds())))


def announce_buried(request: Any, error: Exception) -> None:
    """Tell that *request*, whose message became a letter before it could run, failed for good."""
    _each(_failed(request, error))


def announce_revoked(request: Any, outcome: Outcome | None, reason: str, **how: Any) -> None:
    """Tell that *request* was revoked or expired; one that was settled before keeps its result."""
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
    """Return Celery's request, with *fields*, for *message*, whose task does not run."""
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
    """Tell that *message* names a task that is not registered here."""
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
    return [
        lambda: task.backend.mark_as_retry(request.id, reason.exc, info.traceback, request=context),
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
