"""arq, which has Redis alone."""

from __future__ import annotations

from typing import Any

from arq import Retry, create_pool, func
from arq.connections import RedisSettings

from peers.apps import work

#: It logs each job at INFO, which the others do not.
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}
REDIS = RedisSettings.from_dsn(work.BROKER)
_pools: list[Any] = []


async def handle(ctx: dict[str, Any], event: dict[str, Any]) -> None:
    del ctx
    try:
        await work.run_async(event)
    except work.Unlucky:
        raise Retry from None


class WorkerSettings:
    """What the worker's command reads."""

    functions = (func(handle, name="handle", keep_result=0, max_tries=work.ATTEMPTS),)
    redis_settings = REDIS
    max_jobs = 100
    #: At its default of half a second it is idle most of the time.
    poll_delay = 0.01


async def begin() -> None:
    """Connect."""
    _pools.append(await create_pool(REDIS))


async def send(number: int) -> None:
    """Publish one event."""
    await _pools[0].enqueue_job("handle", work.body(number))


async def end() -> None:
    """Disconnect."""
    await _pools.pop().aclose()
