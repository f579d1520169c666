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

    *holding* returns, once a turn, what tells why a handler is held back. *stop* and *resume* are
    Celery's: both select the queue or not before they tell the broker, so that what they say holds
    at the next connection too.
    """

    def __init__(
        self,
        consumer: Any,
        holding: Callable[[], Held],
        *,
        stop: Callable[[str], object],
        resume: Callable[[str], object],
    ) -> None:
        self._consumer = consumer
        self._holding = holding
        self._stop = stop
        self._resume = resume
        self._closed: set[str] = set()

    def turn(self) -> None:
        """Compare what is consumed with what is held back; called about once a second."""
        app, tasks = self._consumer.app, self._consumer.task_consumer
        if tasks is None or app.stopping():
            return
        self._closed = {queue for queue in self._closed if not tasks.consuming_from(queue)}
        held = self._holding()
        to_close = {
            queue: why
            for queue, served in handlers_of_queues(
                app.handlers, str(app.conf.task_default_queue)
            ).items()
            if (why := _why_all(served, held)) is not None
        }
        for queue in sorted(to_close.keys() - self._closed):
            if tasks.consuming_from(queue):  # else an operator stopped it, or it is not ours
                self._close(queue, to_close[queue])
        for queue in sorted(self._closed - to_close.keys()):
            self._open(queue)

    def leave(self, queue: str) -> None:
        """Take note that an operator stops or resumes *queue*: what he says holds from now on."""
        self._closed.discard(queue)

    def _close(self, queue: str, why: str) -> None:
        _log.warning("consuming_stopped: of queue %s: %s", queue, why)
        self._closed.add(queue)  # first: where the broker is lost meanwhile, it is stopped as well
        self._stop(queue)

    def _open(self, queue: str) -> None:
        _log.warning("consuming_resumed: of queue %s", queue)
        self._resume(queue)
        self._closed.discard(queue)  # last: what fails is done again


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
