"""Valve: a queue all of whose handlers are held back is not consumed meanwhile (spec D5, 27).

What waits there then waits in the broker, where it costs nothing. Queues that serve others too are
consumed; what is held back among theirs is postponed one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from angzarr.delivery.handlers import Handler, Handlers

_log = logging.getLogger("angzarr.worker")

#: Tells why a handler is held back, or None: it is not.
Held: TypeAlias = Callable[[Handler], str | None]


class Valve:
    """Stops and resumes the consuming of queues; in the parent's loop.

    *holding* returns, once a turn, what tells why a handler is held back.
    """

    def __init__(self, consumer: Any, holding: Callable[[], Held]) -> None:
        self._consumer = consumer
        self._holding = holding
        self._closed: set[str] = set()

    def turn(self) -> None:
        """Compare what is consumed with what is held back; called about once a second."""
        app = self._consumer.app
        held = self._holding()
        to_close = {
            queue: why
            for queue, served in handlers_of_queues(
                app.handlers, str(app.conf.task_default_queue)
            ).items()
            if (why := _why_all(served, held)) is not None
        }
        for queue in sorted(to_close.keys() - self._closed):
            self._close(queue, to_close[queue])
        for queue in sorted(self._closed - to_close.keys()):
            self._open(queue)

    def _close(self, queue: str, why: str) -> None:
        if not self._consumer.task_consumer.consuming_from(queue):
            return  # an operator stopped it, or this worker never consumed it: not ours to resume
        _log.warning("consuming_stopped: of queue %s: %s", queue, why)
        self._consumer.cancel_task_queue(queue)
        self._closed.add(queue)

    def _open(self, queue: str) -> None:
        _log.warning("consuming_resumed: of queue %s", queue)
        self._consumer.add_task_queue(queue)
        self._closed.discard(queue)


def handlers_of_queues(handlers: Handlers, default_queue: str) -> Mapping[str, list[Handler]]:
    """Return the handlers that each queue serves, Celery's own tasks left out."""
    served: dict[str, list[Handler]] = {}
    for handler in handlers:
        if not handler.name.startswith("celery."):
            served.setdefault(handler.queue or default_queue, []).append(handler)
    return served


def _why_all(served: list[Handler], held: Held) -> str | None:
    """Return why all that a queue serves is held back; None if something is not."""
    reasons = [held(handler) for handler in served]
    said = [why for why in reasons if why is not None]
    return ", ".join(dict.fromkeys(said)) if len(said) == len(reasons) else None
