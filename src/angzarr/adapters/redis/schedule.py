"""The schedule on Redis: a sorted set of due times and a hash of messages, one script a verb.

Waits are measured by Redis, never by a worker's clock. All keys share one hash tag, and so one
slot of a Redis Cluster. Each script may be sent twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from angzarr.adapters.redis.link import Argument, RedisClient, Script
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.schedule import Row, TakenRows, row_of
from angzarr.events.event import Message

_PUT = Script("schedule_put.lua")
# A server that is full must go on moving what is due: that is what empties it.
_TAKE = Script("schedule_take.lua", frees=True)
_LET_GO = Script("schedule_let_go.lua", frees=True)

#: What `schedule_let_go.lua` reads as "delete".
_DONE = -1


class RedisSchedule:
    """Messages that wait under ``{prefix}:{schedule}:…`` (braces and all)."""

    def __init__(
        self, client: RedisClient, *, prefix: str = "angzarr", clock: Clock | None = None
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._base = f"{prefix}:{{schedule}}"
        self._keys = tuple(f"{self._base}:{part}" for part in ("due", "messages", "tokens"))

    def put(self, copy: Message, at: datetime, /) -> None:
        """Let *copy* wait until *at*, in one round trip."""
        row = row_of(copy)
        wait = _ms(at - self._clock.now())
        self._client.run(_PUT, self._keys, row.id, row.text, max(wait, 0))

    def take(self, token: str, limit: int, lease: timedelta, /) -> TakenRows:
        """Lend what is due, in one round trip."""
        keys = (*self._keys, f"{self._base}:taken:{token}")
        next_in, *found = self._client.run(_TAKE, keys, token, limit, _ms(lease))
        rows = [Row(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
        return TakenRows(rows, None if next_in == "" else timedelta(milliseconds=int(next_in)))

    def done(self, token: str, ids: Sequence[str], /) -> None:
        """Delete what *token* still holds, in one round trip."""
        self._let_go(token, _DONE, ids)

    def give_back(self, token: str, ids: Sequence[str], pause: timedelta, /) -> None:
        """Let what *token* still holds be due after *pause*, in one round trip."""
        self._let_go(token, _ms(pause), ids)

    def close(self) -> None:
        """Close the idle connections; the schedule can still be used and makes new ones."""
        self._client.close()

    def _let_go(self, token: str, pause: int, ids: Sequence[Argument]) -> None:
        self._client.run(_LET_GO, self._keys, token, pause, *ids)


def _ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)
