"""A message in a child: run by Celery's own tracer, without a broker."""

from __future__ import annotations

import uuid

from celery.app.trace import build_tracer
from kombu.utils.json import dumps

from angzarr.adapters.celery.envelope import FIELD, Envelope


def traced(task, *args, headers=None, task_id=None, token=None, answer=None, redelivered=False):
    """Return what the tracer tells the parent of a message for *task*."""
    app, task_id = task.app, task_id or str(uuid.uuid4())
    given = {"id": task_id, "task": task.name, **(headers or {})}
    info = {
        "exchange": "", "routing_key": app.conf.task_default_queue, "redelivered": redelivered
    }  # fmt: skip
    envelope = Envelope(
        token or uuid.uuid4().hex, app._runtime.owner, dumps([args, {}, {}]),
        "application/json", "utf-8", given, {}, info, answer,
    )  # fmt: skip
    request = {
        **given, FIELD: envelope, "args": args, "kwargs": {}, "delivery_info": {}, "retries": 0,
        "is_eager": False,
    }  # fmt: skip
    app.finalize(auto=True)
    task.__trace__ = build_tracer(task.name, task, app.loader, "host", app=app)
    return task.__trace__(task_id, args, {}, request)
