"""huey on Redis."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from peers.apps import work

huey = RedisHuey("bench", url=work.BROKER, results=False)


@huey.task(retries=work.ATTEMPTS - 1)
def handle(event: dict[str, Any]) -> None:
    work.run(event)


def send(number: int) -> None:
    """Publish one event."""
    handle(work.body(number))
