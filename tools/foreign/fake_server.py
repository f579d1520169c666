"""A connection to the fake client of kombu's tests, which knows commands but no scripts.

What our transport says to Redis is done on that client; of the scripts, the step is acted out and
the others are answered as if all went well. Only kombu's tests use this: what the scripts do is
tested on real servers.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

from angzarr.adapters.redis.channel import _NO_MESSAGE
from angzarr.adapters.redis.step import STEP

_numbers = count(1000)


class FakeSocket:
    """What kombu's fake ``poll`` looks at: a number, and data that waits."""

    def __init__(self) -> None:
        self.data: list[Any] = []
        self._number = next(_numbers)

    def fileno(self) -> int:
        return self._number


class FakeConnection:
    """The part of redis-py's connections that our transport uses."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._sock = FakeSocket()

    def connect(self) -> None:
        """Nothing is to be opened."""

    def disconnect(self) -> None:
        self._sock.data.clear()

    def can_read(self, timeout: float = 0) -> bool:
        return bool(self._sock.data)

    def read_response(self, **_options: object) -> Any:
        return self._sock.data.pop(0)

    def send_command(self, *command: Any, **_options: object) -> None:
        match command:
            case ("LPUSH", name, value):
                with self._client() as client:
                    client.lpush(name, value)
                reply: Any = 1
            case ("EVALSHA", STEP.digest, number, *rest):
                reply = self._step(rest[2:number], int(rest[number]))
            case ("EVALSHA", *_):
                reply = 8000
            case ("HKEYS", _):
                reply = []
            case _:
                reply = b"OK"
        self._sock.data.append(reply)

    def _client(self) -> Any:
        """Return the client that a test gave the channel, a new one of its fake ones otherwise."""
        lent = vars(self._channel).get("conn_or_acquire")
        return lent() if lent is not None else nullcontext(self._channel._create_client())

    def _step(self, lists: list[str], most: int) -> list[Any]:
        fetched: list[Any] = []
        with self._client() as client:
            for index, name in enumerate(lists, start=1):
                while len(fetched) < 2 * most and (item := client.rpop(name)) is not None:
                    fetched += [index, item.encode()]
        state = b"full" if len(fetched) == 2 * most else b"empty"
        return [state, *([] for _ in range(_NO_MESSAGE - 1)), *fetched]
