"""saq on Redis."""

from __future__ import annotations

from typing import Any

from saq import Queue

from peers.apps import work

queue = Queue.from_url(work.BROKER)


async def handle(ctx: dict[str, Any], *, event: dict[str, Any]) -> None:
    del ctx
    await work.run_async(event)


settings = {"queue": queue, "functions": [handle], "concurrency": 100}


async def begin() -> None:
    """Connect."""
    await queue.connect()


async def send(number: int) -> None:
    """Publish one event; nothing is kept of its result."""
    await queue.enqueue("handle", event=work.body(number), retries=work.ATTEMPTS, ttl=-1)


async def end() -> None:
    """Disconnect."""
    await queue.disconnect()
