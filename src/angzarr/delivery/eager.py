"""Eager: run a handler at once in the caller's process, for ``apply()`` and tests."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from angzarr.delivery.async_runner import run as run_coroutine
from angzarr.delivery.compensation import Undos, to_undo
from angzarr.delivery.compensation_runner import POLICY, Steps, call_undo
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import read
from angzarr.delivery.handlers import Handler
from angzarr.delivery.step_retry import InPlace
from angzarr.events.event import Message
from angzarr.resilience.breaker_guard import BreakerGuard

_log = logging.getLogger("angzarr.delivery")


def run_eagerly(  # noqa: PLR0917 - what a delivery has and a call has not
    handler: Handler,
    in_place: InPlace,
    undos: Undos,
    headers: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    make_log: Callable[[Mapping[str, Any]], Any],
    make_breaker: Callable[[str], BreakerGuard],
) -> Any:
    """Return the handler's value: decoded as in a worker, but neither claimed nor retried.

    What the handler itself tries again (``ctx.retry``) it does here, too, and its finished steps
    are undone where it raises, as long as this process lives.
    """
    message = Message(
        body=b"",
        content_type="application/json",
        content_encoding="utf-8",
        headers={**headers, "task": handler.name},
        queue="",
    )
    delivery = read(message, args=args, kwargs=kwargs, token="", owner="")
    failure_policy = in_place.failure_policy
    retries = partial(in_place.retrying, delivery, handler, failure_policy.clock.now())
    steps = Steps(delivery, handler, undos, None, retries)
    context = Context(
        delivery=delivery,
        make_policy=partial(failure_policy.policy, delivery, handler),
        make_log=make_log,
        make_breaker=make_breaker,
        make_retries=retries,
        steps=steps,
    )
    running = RUNNING.set(delivery)
    try:
        value = handler.bind(delivery, context)()
        return run_coroutine(value) if inspect.iscoroutine(value) else value
    except Exception:
        _undo(steps, undos)
        raise
    finally:
        RUNNING.reset(running)


def _undo(steps: Steps, undos: Undos) -> None:
    for step in to_undo((), steps.unwritten):
        try:
            call_undo(undos, step, steps.retries(POLICY))
        except Exception:  # noqa: BLE001 - one failing undo does not stop the rest
            _log.exception("step_not_undone: %r", step.name)
