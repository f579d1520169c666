"""BoundedProducerPool: kombu's pool of producers, for which a publisher waits a bounded time.

kombu waits without a bound while all connections of `broker_pool_limit` are in use, as they are
where more threads publish than there are connections and the broker does not answer.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import Celery
from kombu.exceptions import LimitExceeded
from kombu.pools import ProducerPool


class BoundedProducerPool(ProducerPool):
    """The producers of *app*, which use its connections. Safe to use from many threads.

    By default one waits for `broker_pool_acquire_timeout` seconds, for ever if that is None.
    """

    def __init__(self, app: Celery, **options: Any) -> None:
        self._app = app
        #: By thread: until when the publisher waits that is here, by the monotonic clock.
        self._until = threading.local()
        super().__init__(app.pool, limit=app.pool.limit, **options)

    def acquire(self, block: bool = False, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        """Lend a producer; LimitExceeded after *timeout* seconds."""
        longest = self._app.conf.broker_pool_acquire_timeout if timeout is None else timeout
        self._until.at = None if longest is None else time.monotonic() + longest
        try:
            return super().acquire(block=block, timeout=longest)
        except LimitExceeded as error:
            waited = (longest or 0) if block else 0
            msg = (
                f"all {self.limit} connections of broker_pool_limit were in use for {waited:g} s:"
                " publish from fewer threads, or raise it"
            )
            raise LimitExceeded(msg) from error

    def _acquire_connection(self) -> Any:
        """A connection, which others than producers may have borrowed from the same pool."""
        until = self._until.at
        left = None if until is None else max(until - time.monotonic(), 0)
        return self.connections.acquire(block=True, timeout=left)
