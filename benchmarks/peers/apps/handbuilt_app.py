"""What people build by hand: Celery, Powertools' idempotency and pybreaker on one Redis.

Late acknowledgement, retries by Celery, a claim before each run and its result after it, and a
breaker that all processes share. Nothing fences a late worker, and nothing becomes a dead letter.
"""

from __future__ import annotations

import os
from typing import Any

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from celery import Celery
from pybreaker import STATE_CLOSED, CircuitBreaker, CircuitBreakerError, CircuitRedisStorage
from redis import Redis
from workers.environment import BROKER, SHARED

from peers.apps import work

#: So long (s) a record in progress keeps other runs of its event out.
HELD = 30
PREFIX = os.environ["BENCH_STORE_PREFIX"]
store = Redis.from_url(os.environ["BENCH_STORE"])


class TimeLeft:
    """Stands in for the context of AWS Lambda, by which a record in progress ends."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        """How long a run may take."""
        return 1000 * HELD


app = Celery("bench", broker=BROKER, set_as_current=True)
app.conf.update(SHARED, task_acks_late=True, task_reject_on_worker_lost=True)

breaker = CircuitBreaker(
    fail_max=5, reset_timeout=HELD, name="crm",
    state_storage=CircuitRedisStorage(STATE_CLOSED, store, namespace=PREFIX),
)  # fmt: skip
config = IdempotencyConfig(event_key_jmespath="order_id", lambda_context=TimeLeft())


@idempotent_function(
    data_keyword_argument="event", config=config, key_prefix=f"{PREFIX}:handle",
    persistence_store=CachePersistenceLayer(client=store),
)  # fmt: skip
def handle_once(*, event: dict[str, Any]) -> None:
    breaker.call(work.run, event)


@app.task(
    bind=True, autoretry_for=(work.Unlucky,), default_retry_delay=0, max_retries=work.ATTEMPTS - 1,
    name="bench.handle",
)  # fmt: skip
def handle(self: Any, event: dict[str, Any]) -> None:
    try:
        handle_once(event=event)
    except (CircuitBreakerError, IdempotencyAlreadyInProgressError) as error:
        raise self.retry(exc=error, countdown=HELD) from None


def send(number: int) -> None:
    """Publish one event."""
    handle.delay(work.body(number))
