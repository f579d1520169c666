"""A consumer that is killed where it reads the body "killer", as by the kernel for its memory.

Usage: redis_dying_reader.py URL QUEUE; prints each other body once it has acknowledged it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

from kombu import Connection, Consumer, Queue


def read(message: Any) -> None:
    if message.payload == "killer":
        os.kill(os.getpid(), signal.SIGKILL)


def take(message: Any) -> None:
    message.ack()
    print(message.payload, flush=True)


def main(url: str, queue: str) -> None:
    options = {
        "lease": 1.0,
        "on_fetched": lambda messages: [read(message) for message in messages],
        "on_returned": read,
    }
    transport = "angzarr.adapters.redis.transport:RedisTransport"
    with (
        Connection(url, transport=transport, transport_options=options) as connection,
        connection.channel() as channel,
        Consumer(channel, [Queue(queue)], on_message=take, prefetch_count=10),
    ):
        while True:
            with suppress(TimeoutError):
                connection.drain_events(timeout=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
