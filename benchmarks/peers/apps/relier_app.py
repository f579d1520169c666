"""Relier: its guarantees on Celery and Redis, an idempotent task as its first page shows one."""

from __future__ import annotations

from typing import Any

from relier import rl_task

from peers.apps import work


@rl_task(idempotent=True, hard_timeout=30)
async def handle(event: dict[str, Any]) -> None:
    await work.run_async(event)


async def begin() -> None:
    """Its client connects by itself."""


async def send(number: int) -> None:
    """Publish one event."""
    await handle.apush(work.body(number))


async def end() -> None:
    """Its client disconnects by itself."""
