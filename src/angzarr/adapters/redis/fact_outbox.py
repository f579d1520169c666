"""The outbox of facts on Redis: a stream beside the claims, to which their scripts write.

The claims of a cluster have none: their records lie on many nodes, and a script writes to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redis.exceptions import RedisError

from angzarr.adapters.redis.link import Argument, RedisClient, Script
from angzarr.adapters.redis.server import fields_of, may_not_be_asked
from angzarr.errors import StoreUnavailable
from angzarr.facts.outbox import MOST_WAITING, OutboxDepth, WaitingFact

KEEP_FACTS: Final = {"keep_facts": "keep_facts.lua"}
_PUT: Final = Script("keep_facts.lua")


class RedisFactOutbox:
    """Facts in the stream ``{prefix}:facts``, *most* or some more: Redis trims by the hundred."""

    def __init__(self, client: RedisClient, *, prefix: str, most: int = MOST_WAITING) -> None:
        self._client = client
        self._stream = f"{prefix}:facts"
        self._most = most
        self._is_open: bool | None = None

    def is_open(self) -> bool:
        """False on a node of a cluster; a server that is away, or does not tell, is taken for none.

        The first call asks the server.
        """
        if self._is_open is None:
            try:
                told = fields_of(self._client.execute("INFO", "cluster"))
            except (RedisError, StoreUnavailable) as error:
                if not may_not_be_asked(error):
                    return True
                told = {}
            self._is_open = told.get("cluster_enabled", "0") != "1"
        return self._is_open

    def args(self, texts: Sequence[str]) -> tuple[Argument, ...]:
        """What ``settle.lua`` and ``owns.lua`` take to keep *texts* in their step."""
        return (len(texts), self._stream, self._most, *texts) if texts else (0,)

    def put(self, texts: Sequence[str], /) -> None:
        """Put *texts* last."""
        if texts:
            self._client.run(_PUT, [self._stream], self._most, *texts)

    def read(self, most: int, /) -> list[WaitingFact]:
        """The oldest *most* facts."""
        found = self._client.execute("XRANGE", self._stream, "-", "+", "COUNT", most)
        return [WaitingFact(place, _line(fields)) for place, fields in found]

    def remove(self, places: Sequence[str], /) -> None:
        """Remove the facts at *places*."""
        if places:
            self._client.execute("XDEL", self._stream, *places)

    def trim(self) -> OutboxDepth:
        """How many wait, and how many were dropped since the last call."""
        waiting = int(self._client.execute("XLEN", self._stream))
        dropped = int(self._client.execute("GETDEL", f"{self._stream}:dropped") or 0)
        return OutboxDepth(waiting, dropped)


def _line(fields: Sequence[str]) -> str:
    """The line in *fields*, which another program may have written."""
    return dict(zip(fields[::2], fields[1::2], strict=False)).get("fact", "")
