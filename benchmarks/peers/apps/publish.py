"""Publish through an app's own door: `python -m peers.apps.publish APP FIRST EVENTS RATE`.

RATE is events a second; 0 means as fast as the app's client goes. The moment before each call is
stamped.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from importlib import import_module
from typing import Any

from workers.stamps import Stamps

from peers.apps.work import FOLDER

#: Calls that an asynchronous client has under way at once when it goes as fast as it can.
AT_ONCE = 100


def main(app: str, first: int, events: int, rate: float) -> None:
    """Publish *events* events, numbered from *first*."""
    module, numbers = import_module(app), range(first, first + events)
    published = Stamps(FOLDER / "published")
    if inspect.iscoroutinefunction(module.send):
        asyncio.run(_send_async(module, numbers, rate, published))
    elif not rate and hasattr(module, "send_many"):
        module.send_many(numbers)
    else:
        _send(module, numbers, rate, published)


def _send(module: Any, numbers: range, rate: float, published: Stamps) -> None:
    began = time.monotonic()
    for number in numbers:
        if rate:
            time.sleep(max(0.0, began + (number - numbers.start) / rate - time.monotonic()))
        published.set(number)
        module.send(number)


async def _send_async(module: Any, numbers: range, rate: float, published: Stamps) -> None:
    async def send(number: int) -> None:
        published.set(number)
        await module.send(number)

    await module.begin()
    try:
        if rate:
            began = time.monotonic()
            for number in numbers:
                due = began + (number - numbers.start) / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await send(number)
        else:
            for start in range(numbers.start, numbers.stop, AT_ONCE):
                chunk = range(start, min(start + AT_ONCE, numbers.stop))
                await asyncio.gather(*map(send, chunk))
    finally:
        await module.end()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
