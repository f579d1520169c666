"""The same handler on bare Celery with late ack, which retries by itself: five times, 1 s doubled.

With BENCH_PYBREAKER, seconds, its call goes through a breaker of pybreaker's that Redis shares and
that opens for so long; a refusal is retried as a failure is.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import pybreaker
import redis
from celery import Celery, Task

from workers.dependent import GIVEN_UP, call, handle
from workers.environment import BROKER, SHARED

app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True)


def _breaker(open_for: float) -> pybreaker.CircuitBreaker:
    storage = pybreaker.CircuitRedisStorage(pybreaker.STATE_CLOSED, redis.Redis.from_url(BROKER))
    return pybreaker.CircuitBreaker(fail_max=5, reset_timeout=open_for, state_storage=storage)


OPEN_FOR = os.environ.get("BENCH_PYBREAKER")
GUARDED = _breaker(float(OPEN_FOR))(call) if OPEN_FOR else None


class Noted(Task):
    def on_failure(self, _error: Any, _id: Any, args: Any, _kwargs: Any, _info: Any) -> None:
        GIVEN_UP.write(args[0])


@app.task(
    base=Noted,
    name="bench.dependent",
    autoretry_for=(httpx.HTTPError, pybreaker.CircuitBreakerError),
    retry_backoff=1,
    max_retries=5,
)
def dependent(number: int) -> None:
    handle(number, GUARDED)


def send(number: int) -> None:
    """Publish one event."""
    dependent.delay(number)
