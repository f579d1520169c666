"""Valve: a queue all of whose handlers are held back is not consumed meanwhile (spec D5, 27).

What waits there then waits in the broker, where it costs nothing. Queues that serve others too are
consumed; what is held back among theirs is postponed one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from angzarr.adapters.celery.worker.queue_handlers import handlers_of_queues
from angzarr.delivery.handlers import Handler

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
        to_close = _all_held(app, self._holding())
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


def _all_held(app: Any, held: Held) -> dict[str, str]:
    """Return the queues all of whose handlers are held back, and why."""
    reasons = {handler.name: why for handler in app.handlers if (why := held(handler)) is not None}
    if not reasons:
        return {}
    return {
        queue: ", ".join(dict.fromkeys(reasons[handler.name] for handler in served))
        for queue, served in handlers_of_queues(app).items()
        if all(handler.name in reasons for handler in served)
    }
