"""Eager: run a handler at once in the caller's process, for ``apply()`` and tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from angzarr.delivery.colour import run as run_coroutine
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import read
from angzarr.delivery.handlers import Handler
from angzarr.delivery.in_place import InPlace
from angzarr.events.message import Message
from angzarr.resilience.breaker_guard import BreakerGuard


def run_eagerly(  # noqa: PLR0917 - what a delivery has and a call has not
    handler: Handler,
    in_place: InPlace,
    headers: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    make_log: Callable[[Mapping[str, Any]], Any],
    make_breaker: Callable[[str], BreakerGuard],
) -> Any:
    """Return the handler's value: decoded as in a worker, but neither claimed nor retried.

    What the handler itself tries again (``ctx.retry``) it does here, too.
    """
    message = Message(
        body=b"",
        content_type="application/json",
        content_encoding="utf-8",
        headers={**headers, "task": handler.name},
        queue="",
    )
    delivery = read(message, args=args, kwargs=kwargs, token="", owner="")
    judge = in_place.judge
    context = Context(
        delivery=delivery,
        policy=judge.policy(delivery, handler),
        make_log=make_log,
        make_breaker=make_breaker,
        make_retries=partial(in_place.retrying, delivery, handler, judge.clock.now()),
    )
    running = RUNNING.set(delivery)
    try:
        value = handler.bind(delivery, context)()
        return run_coroutine(value) if inspect.iscoroutine(value) else value
    finally:
        RUNNING.reset(running)
