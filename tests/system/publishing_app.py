"""A program that publishes for ever and prints the id of each event that was confirmed."""

from __future__ import annotations

import asyncio
import itertools
import sys

from angzarr import Angzarr, Publication

BROKER, QUEUE, HOW = sys.argv[1:]
#: Coroutines that publish side by side, and events of one call of `publish_many`.
SIDE_BY_SIDE, TOGETHER = 20, 300

app = Angzarr("publishing", broker=BROKER, store="redis://127.0.0.1:1")
app.conf.task_default_queue = QUEUE


@app.handler("placed", name="one")
def one(event: dict[str, int]) -> None:
    """Handle it."""


def say(event_id: str) -> None:
    """Tell the test that the event was confirmed."""
    sys.stdout.write(f"{event_id}\n")
    sys.stdout.flush()


async def publish(numbers: itertools.count[int]) -> None:
    """Publish one after the other."""
    while True:
        event = await app.apublish({}, type="placed", id=f"e-{next(numbers)}")
        say(event.id)


async def publish_many(numbers: itertools.count[int]) -> None:
    """Publish some hundreds at a time."""
    while True:
        given = [Publication({}, id=f"e-{next(numbers)}") for _ in range(TOGETHER)]
        for event in await app.apublish_many(given, type="placed"):
            say(event.id)


async def main() -> None:
    """Publish side by side until the process is killed."""
    numbers = itertools.count()
    work = {"one": publish, "many": publish_many}[HOW]
    await asyncio.gather(*(work(numbers) for _ in range(SIDE_BY_SIDE)))


if __name__ == "__main__":
    asyncio.run(main())
