"""The job of a batch in the process that runs it: settled together, told to Celery one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from celery import current_app


class PoolCall(NamedTuple):
    """What Celery's trace functions take for one message: its body is decoded."""

    id: str
    request: dict[str, Any]
    body: tuple[Any, Any, Any]


def run_batch(
    trace: Callable[..., Any], name: str, calls: Sequence[tuple[Any, ...]]
) -> tuple[int, list[Any], float]:
    """Handle *calls* of the task *name* as one batch; what *trace* says of each, in order.

    In the form in which Celery's pools expect the end of one task.
    """
    made = [PoolCall(*call) for call in calls]
    current_app.tasks[name].settle_batch(made)
    return 0, [trace(name, call.id, call.request, call.body, None, None) for call in made], 0.0
