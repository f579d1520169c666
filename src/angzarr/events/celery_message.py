"""The message that Celery would send for an event, written without a broker (protocol 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from angzarr.events.event import Event
from angzarr.events.headers import QUEUE, to_headers
from angzarr.events.message import Message

#: What a Celery publisher writes behind the arguments.
_EMBED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
#: Celery's own bound for its texts of the arguments.
_LONGEST_REPR: Final = 1024


def celery_message(
    task: str,
    task_id: str,
    event: Event,
    queue: str,
    *,
    origin: str,
    headers: Mapping[str, Any] | None = None,
) -> Message:
    """Return the message that gives *event* to *task* by way of *queue* (decisions 14).

    *origin* says who wrote it; *headers* are sent besides those of the event.
    """
    return Message(
        body=json.dumps([[event.data], {}, _EMBED]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            **_celery_headers(task, task_id, [event.data], origin),
            **to_headers(event),
            **(headers or {}),
            QUEUE: queue,
        },
        queue=queue,
        exchange="",
        routing_key=queue,
        properties={"correlation_id": task_id, "reply_to": ""},
    )


def _celery_headers(task: str, task_id: str, args: list[Any], origin: str) -> dict[str, Any]:
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": repr(args)[:_LONGEST_REPR],
        "kwargsrepr": "{}",
        "origin": origin,
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
