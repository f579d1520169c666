"""Publishes the links of a success and the next step of its chain.

Celery sends them after the task body, so a kill at that point would lose them behind a completed
claim. Here they are sent before the claim is completed. Sending them again uses the same ids.
"""

from __future__ import annotations

import logging
import uuid
from traceback import format_exception
from typing import Any, Final

from celery import Celery, chord, group, signature
from celery.app.task import Context, get_actual_ignore_result
from celery.backends.base import DisabledBackend
from celery.canvas import _chain as chain
from kombu.exceptions import OperationalError

from angzarr.adapters.celery.publish.publisher import unconfirmed
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING
from angzarr.delivery.delivery import Delivery
from angzarr.errors import DeliveryError, Unavailable, UnserializableEvent, text_of
from angzarr.events.headers import OwnHeaders, pin_headers, without_ours

_log = logging.getLogger("angzarr.worker")

#: The errors that Celery raises for a malformed link or a value that is not JSON.
_NEVER = (UnserializableEvent, TypeError, ValueError, LookupError, AttributeError)


#: The attribute of a request whose state RETRY is stored.
_RETRY_TOLD: Final = "angzarr_retry_told"


class CeleryFollowers:
    """Publishes the followers of the request in `FOLLOWING`."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def has_any(self) -> bool:
        """True if the request in `FOLLOWING` has links or a next step."""
        request = FOLLOWING.get()
        return request is not None and bool(request.callbacks or request.chain)

    def publish(self, delivery: Delivery, value: Any) -> None:
        """Publish links, then the chain's next step.

        Raises BrokerUnavailable if one was not confirmed, Unavailable if the result backend of a
        chord is away. Raises DeliveryError if one can never be published: the value
        is not JSON, or an entry in the message is not a task.
        """
        if not self.has_any():
            return
        request = FOLLOWING.get()
        options = self._options(delivery, request)
        try:
            for index, link in enumerate(request.callbacks or ()):
                self._send(link, value, f"{delivery.message.id}:{index}", options, delivery)
            if request.chain:
                *later, following = request.chain
                step = signature(following, app=self._app)
                identify(step, f"{delivery.message.id}:chain")
                step.apply_async((value,), chain=later, **options, **_pinned(step, delivery))
        except (OperationalError, OSError) as error:
            msg = f"the broker did not confirm what follows task {delivery.message.id}: {error}"
            raise unconfirmed(msg, error) from error
        except _NEVER as error:
            msg = f"what follows task {delivery.message.id} cannot be sent: {text_of(error)}"
            raise DeliveryError(msg) from error
        except Exception as error:
            if not self._is_backend_away(error):
                raise
            msg = f"the result backend did not take what follows task {delivery.message.id}: "
            raise Unavailable(msg + text_of(error)) from error

    def tell_retry(self, error: Exception) -> None:
        """Store the state RETRY of the request in `FOLLOWING`, in place of Celery's tracer.

        The tracer would do it once the copy is out, and could overwrite the end of that: who waits
        would wait for ever. It still does so where the result backend failed here.
        """
        request = FOLLOWING.get()
        if request is None or getattr(request, _RETRY_TOLD, False):
            return
        task = self._app.tasks[request.task]  # it may have a backend of its own
        if isinstance(task.backend, DisabledBackend) or get_actual_ignore_result(task, request):
            return
        try:
            stack = "".join(format_exception(error))
            task.backend.mark_as_retry(request.id, error, stack, request=request)
        except Exception as failed:  # noqa: BLE001 - the retry is made, whatever the backend says
            _log.debug("retry_not_told: Celery's tracer tries again: %r", failed)
        else:
            setattr(request, _RETRY_TOLD, True)

    def _is_backend_away(self, error: Exception) -> bool:
        """True if *error* is the result backend's, which counts a chord before it is sent."""
        backend = self._app.backend
        away = getattr(backend, "connection_errors", ())
        cause: BaseException | None = error
        while cause is not None:  # Celery wraps some into a RuntimeError
            if isinstance(cause, away) or backend.exception_safe_to_retry(cause):
                return True
            cause = cause.__cause__
        return False

    def _send(
        self, link: Any, value: Any, seed: str, options: dict[str, Any], delivery: Delivery
    ) -> None:
        if not isinstance(link, dict):
            msg = f"the link {link!r:.100} is not a task"
            raise TypeError(msg)
        step = signature(link, app=self._app)
        identify(step, seed)
        step.apply_async((value,), **options, **_pinned(step, delivery))

    def _options(self, delivery: Delivery, request: Any) -> dict[str, Any]:
        inherit = self._app.conf.task_inherit_parent_priority
        return {
            "parent_id": delivery.message.id,
            "root_id": request.root_id or delivery.message.id,
            "priority": delivery.message.priority if inherit else None,
        }


def _pinned(step: Any, delivery: Delivery) -> dict[str, Any]:
    """The option by which *step* sees the configurations that *delivery* is pinned to; or none."""
    pins = delivery.event.config_pins
    if not pins:
        return {}
    given = without_ours(step.options.get("headers") or {})
    return {"headers": OwnHeaders({**given, **pin_headers(pins)})}


def identify(step: Any, seed: str) -> None:
    """Give *step* and all that it is made of ids, so that sending it again sends the same.

    An id that it has already (a chain gives its steps theirs) stays.
    """
    for index, member in enumerate(_parts(step)):
        identify(member, f"{seed}:{index}")
    step.options.setdefault("task_id", str(uuid.uuid5(uuid.NAMESPACE_OID, seed)))


def _parts(step: Any) -> list[Any]:
    if isinstance(step, chord):
        header = step.tasks.tasks if isinstance(step.tasks, group) else step.tasks
        return [*header, step.body]
    return list(step.tasks) if isinstance(step, group | chain) else []


def keep_told_retry(request: Any) -> None:
    """Keep Celery's tracer from storing the state RETRY once more, if `tell_retry` has."""
    if getattr(request, _RETRY_TOLD, False):
        request.ignore_result = True


def forget_followers(request: Any) -> None:
    """Keep Celery's tracer from publishing them a second time, or after a skip."""
    request.callbacks = None
    request.chain = None


def tell_skipped(task: Any, request: Any) -> None:
    """End the results of the tasks that were to follow a skipped one: with None.

    The last step's result is that of its chain, and a chord waits for it. A result that cannot be
    stored is lost, as any other is.
    """
    waiting = list(request.chain or ())
    while waiting:
        step = waiting.pop()
        if not isinstance(step, dict):
            continue
        waiting.extend(_results_of(step))
        try:
            _tell_skipped(task.backend, step.get("options") or {})
        except Exception as error:  # noqa: BLE001 - a result backend away, or what is no step
            _log.warning(
                "followers_not_told: tasks after a skipped one may stay PENDING: %r", error
            )


def _tell_skipped(backend: Any, options: dict[str, Any]) -> None:
    task_id = options.get("task_id")
    if task_id is None:
        return
    context = Context(options, id=task_id, group=options.get("group_id"))
    backend.mark_as_done(task_id, None, context)


def _results_of(step: dict[str, Any]) -> list[Any]:
    """The steps whose result is that of a *step* made of others."""
    kind, kwargs = step.get("subtask_type"), step.get("kwargs") or {}
    if kind == "chord":
        return [kwargs.get("body")]
    return list(kwargs.get("tasks") or ()) if kind == "group" else []
