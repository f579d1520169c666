"""Restarts: the pauses of a consumer that is told to connect again, and again, and again.

Celery connects anew at once, five times a second: a login that is refused for a while, a queue
whose node is down or a vhost that is full would be asked by a whole fleet without a pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from celery.worker.state import maybe_shutdown

#: Seconds until the second try in a row, which double up to the longest.
FIRST, LONGEST = 0.5, 15.0
#: Seconds that a connection must have lasted for the next loss to be the first in a row.
SETTLED: Final = 60.0
#: Seconds between two looks whether the worker is told to stop.
LOOKED_EVERY = 0.1


class Restarts:
    """Stands where Celery counts restarts.

    `step` is called before the first start and each but the second, which has no pause: Celery
    counts from -1, and asks whether the count is 0.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        chance: Callable[[], float] = random.random,
        look: Callable[[], object] = maybe_shutdown,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._look = look
        self._tried_at: float | None = None
        self._wait = 0.0

    def step(self) -> None:
        """Wait as long as the tries in a row say, half of it by chance; raises WorkerShutdown."""
        tried_at = self._tried_at
        if tried_at is None or self._clock() - tried_at >= SETTLED:
            self._wait = 0.0
        else:
            self._wait = min(max(FIRST, 2 * self._wait), LONGEST)
        until = self._clock() + self._wait * (1 + self._chance()) / 2
        while (left := until - self._clock()) > 0:
            self._look()
            self._sleep(min(left, LOOKED_EVERY))
        self._tried_at = self._clock()
