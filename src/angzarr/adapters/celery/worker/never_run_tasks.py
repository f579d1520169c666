"""Lost tasks: who waits for one is told that its message is a dead letter and never ran.

The message came from a queue, and may be damaged: what of it is sound says whom to tell. That is
its result's state, the rest of its chain, the chord around it, and its errbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from celery.app.task import Context
from celery.backends.rpc import RPCBackend
from celery.states import READY_STATES
from kombu.serialization import loads

from angzarr.adapters.celery.message_check import checked_body, sound_fields
from angzarr.adapters.celery.worker.task_events import context_of
from angzarr.events.message import Message
from angzarr.runtime.json_bounds import Bounds, check_json

_log = logging.getLogger("angzarr.worker")

_JSON: Final = "application/json"
#: What a body embeds, by which others wait.
_FOLLOWERS: Final = ("callbacks", "errbacks", "chain", "chord")


def tell_lost(app: Any, message: Message, error: Exception) -> None:
    """Tell who waits for the task of *message* that it failed with *error*; never raises.

    Nobody is told twice that a task ended: one that has a result keeps it.
    """
    try:
        request = _request_of(message, app.settings.message.bounds)
        if request is not None:
            _tell(app, request, error)
    except Exception as failed:  # noqa: BLE001 - a result backend away, a hook that raises
        _log.warning("not_announced: the letter of task %r is kept: %r", message.id, failed)


def _tell(app: Any, request: Context, error: Exception) -> None:
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
    """Return True if the task has its result; False also where nobody can be asked."""
    if isinstance(backend, RPCBackend):  # each asks a queue of its own
        return False
    try:
        return backend.get_state(task_id) in READY_STATES
    except NotImplementedError:  # results are disabled
        return False


def _request_of(message: Message, bounds: Bounds) -> Context | None:
    """Return what is sound of the request; None: it does not say which task it is."""
    said = sound_fields(message.headers)
    if not said.get("id") or not isinstance(message.headers.get("task"), str):
        return None
    args, kwargs, embed = _body_of(message, bounds)
    follows = {name: value for name, value in sound_fields(embed).items() if name in _FOLLOWERS}
    return context_of({**said, **follows, "task": message.task}, message, args, kwargs)


def _body_of(message: Message, bounds: Bounds) -> tuple[Any, Any, Mapping[str, Any]]:
    """Return args, kwargs and embed as far as they are sound; each may be empty."""
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
