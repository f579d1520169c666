"""The register of bodies on Redis: who holds them, and which are free (spec F4).

All keys are in one slot. Claims on one server release with their ending, in its script; those of a
cluster lie in other slots, and release by a call of their own behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from angzarr.adapters.redis.link import Argument, RedisClient, Script
from angzarr.payloads.collector import BATCH, PayloadCount, PayloadState, RegisteredPayload
from angzarr.payloads.holders import GENERATION_LENGTH, PayloadHold

_MOVE: Final = {"move": "payload_move.lua"}
#: Functions of a script that ends holds: `release_payloads` is ``payload_release.lua``.
RELEASE_PAYLOADS: Final = {**_MOVE, "release_payloads": "payload_release.lua"}

_HOLD: Final = Script("payload_hold.lua", functions=_MOVE)
_JOIN: Final = Script("payload_join.lua", functions=_MOVE)
_RELEASE: Final = Script("payload_release.lua", functions=_MOVE)
_CONDEMN: Final = Script("payload_condemn.lua", functions=_MOVE)
_FORGET: Final = Script("payload_forget.lua", functions=_MOVE)
_FIND: Final = Script("payload_find.lua")


class RedisPayloadHolders:
    """Fulfils `PayloadHolders` and `PayloadRegister`, in keys below ``{prefix}:{payloads}``."""

    def __init__(self, client: RedisClient, *, prefix: str) -> None:
        self._client = client
        #: What the names of all keys begin with; the braces are a hash tag.
        self.base: Final = f"{prefix}:{{payloads}}"

    def hold(self, address: str, size: int, holder: str, /, *, fresh: str) -> str:
        """Register *holder*, and return the URI to put the body at."""
        return str(self._client.run(_HOLD, [self.base], address, size, holder, fresh))

    def join(self, holds: Sequence[PayloadHold], /) -> list[bool]:
        """Register *holds* of bodies that are registered."""
        if not holds:
            return []
        return [bool(one) for one in self._client.run(_JOIN, [self.base], *_flat(holds))]

    def release(self, holds: Sequence[PayloadHold], /) -> None:
        """End *holds*."""
        if holds:
            self._client.run(_RELEASE, [self.base], *_flat(holds))

    def args(self, hold: PayloadHold | None) -> tuple[Argument, ...]:
        """What ``settle.lua`` takes to end *hold* with a claim."""
        return (0,) if hold is None else (1, self.base, *hold)

    def find(
        self, state: PayloadState, longer_than: timedelta, /, *, limit: int, skip: int = 0
    ) -> list[RegisteredPayload]:
        """Bodies in *state*, the longest first."""
        args = (state.value, _ms(longer_than), skip, limit)
        return [
            RegisteredPayload(uri, size, state, timedelta(milliseconds=since), holders, holder)
            for uri, since, size, holders, holder in self._client.run(_FIND, [self.base], *args)
        ]

    def condemn(
        self, uris: Sequence[str], state: PayloadState, longer_than: timedelta, /
    ) -> list[str]:
        """Condemn those that still are in *state*."""
        args = (state.value, _ms(longer_than), GENERATION_LENGTH, *uris)
        return list(self._client.run(_CONDEMN, [self.base], *args)) if uris else []

    def forget(self, uris: Sequence[str], /) -> None:
        """Forget condemned bodies."""
        if uris:
            self._client.run(_FORGET, [self.base], *uris)

    def known(self, uris: Sequence[str], /) -> set[str]:
        """Those of *uris* that are registered."""
        if not uris:
            return set()
        sizes = self._client.execute("HMGET", f"{self.base}:sizes", *uris)
        return {uri for uri, size in zip(uris, sizes, strict=True) if size is not None}

    def holders_of(self, uri: str, /, *, limit: int = BATCH) -> set[str]:
        """Those who hold the body at *uri*."""
        return set(self._client.execute("SRANDMEMBER", f"{self.base}:by:{uri}", limit))

    def count(self) -> dict[PayloadState, PayloadCount]:
        """How many bodies are in each state."""
        cards = [("ZCARD", f"{self.base}:{state.value}") for state in PayloadState]
        asked = ("HMGET", f"{self.base}:bytes", *(state.value for state in PayloadState))
        *bodies, sizes = self._client.execute_many([*cards, asked])
        return {
            state: PayloadCount(number, int(size or 0))
            for state, number, size in zip(PayloadState, bodies, sizes, strict=True)
        }


def _flat(holds: Sequence[PayloadHold]) -> list[str]:
    return [text for hold in holds for text in hold]


def _ms(span: timedelta) -> int:
    """*span* in milliseconds; none may have to pass."""
    return round(span.total_seconds() * 1000)
