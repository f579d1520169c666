"""Events of workers, which are of the moment: none holds up a loop, and none is read unbounded.

Celery publishes a worker's heartbeat on its loop and tries again until the broker is back: with a
Redis that is away nothing else happens meanwhile, no result is read and no time limit is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher
from celery.events.receiver import EventReceiver

from angzarr.adapters.celery.worker.broadcasts import bounded

#: One new connection is tried at once; without it the event waits until the next connection.
ONCE: Final[Mapping[str, int]] = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}
#: Events that wait so; the oldest are forgotten.
MOST_WAITING: Final = 1000


class PatientDispatcher(EventDispatcher):
    """Celery's, bounded in time and in what it keeps."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outbound_buffer: deque[Any] = deque(maxlen=MOST_WAITING)

    def _publish(
        self,
        event: Any,
        producer: Any,
        routing_key: str,
        retry: bool = False,  # noqa: FBT001, FBT002 - Celery's
        retry_policy: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super()._publish(
            event, producer, routing_key, retry, {**ONCE, **(retry_policy or {})}, **more
        )


class BoundedReceiver(EventReceiver):
    """Celery's, which drops what is too large or no event: gossip reads it in each worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        queue: Any = self.queue
        self.queue: Any = bounded(queue, self.app.settings.message.bounds)


class PatientEvents(Events):
    """Makes such dispatchers and receivers."""

    dispatcher_cls = f"{__name__}:PatientDispatcher"
    receiver_cls = f"{__name__}:BoundedReceiver"
