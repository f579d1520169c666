"""The strategy of a road task: makes a request of each message and hands it to the pool.

It leaves out what was not asked for: a line for each message, events, a rate limit, a time to wait
for. A message that needs one of these is left to Celery's own strategy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.worker import strategy
from celery.worker.request import create_request_cls
from celery.worker.state import task_reserved
from kombu.utils.imports import symbol_by_name

from angzarr.adapters.celery.worker.unheard_error import shows_tasks


def road(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """The function that takes the messages of *task*; Celery asks for one each time it connects."""
    celerys: Callable[..., Any] = strategy.default(task, app, consumer, **options)
    if strategy.logger.isEnabledFor(logging.INFO):
        return celerys
    eventer = consumer.event_dispatcher
    hostname, lost = consumer.hostname, consumer.connection_errors
    base = symbol_by_name(task.Request)
    make = create_request_cls(base, task, consumer.pool, hostname, eventer, app=app)
    utc, name = app.uses_utc_timezone(), task.name
    buckets = {} if consumer.disable_rate_limits else consumer.task_buckets
    revoked, received = consumer.controller.state.revoked, signals.task_received
    handle = consumer.on_task_request

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> Any:
        payload, headers = message.payload, message.headers
        asked = buckets.get(name) or shows_tasks(eventer, task)
        if asked or body is not None or "args" in payload or headers.get("eta"):
            return celerys(message, body, ack, reject, callbacks)
        request = make(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=hostname,
            eventer=eventer,
            task=task,
            connection_errors=lost,
            body=message.body,
            headers=headers,
            decoded=False,
            utc=utc,
        )
        if (request.expires or request.id in revoked) and request.revoked():
            return None
        if received.receivers:
            received.send(sender=consumer, request=request)
        task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        return handle(request)

    return receive
