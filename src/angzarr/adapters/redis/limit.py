"""Limits on Redis, shared by a whole fleet.

One round trip asks all limits of a delivery, one frees its slots. A slot has a lease, which the
line's thread renews while the handler runs: what a killed worker held is free when it ends.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from angzarr.adapters.redis.flow_line import FlowLine, flow_key
from angzarr.adapters.redis.link import Argument, Script
from angzarr.resilience.idempotency import key_part
from angzarr.resilience.limit import Exceeded, LimitScope, LineWait

_SCRIPT: Final = Script("limit.lua")

#: How long a slot is held for a process that does not say that it lives.
LEASE: Final = timedelta(seconds=30)
#: The longest part of a key that a tenant, a root, … is; a longer one has a digest.
_LONGEST: Final = 100


@dataclass(slots=True)
class _Slots:
    """What a call of this process holds, since when, and when that was last said."""

    scopes: Sequence[LimitScope]
    since: float
    renewed: float


class _Ended(NamedTuple):
    """A slot that is to be freed."""

    scope: LimitScope
    token: str
    held_ms: str
    at: float


class RedisLimits:
    """Fulfils `Limits`, safe to use from many threads; *line* is shared with others who use it."""

    def __init__(
        self,
        line: FlowLine,
        *,
        lease: timedelta = LEASE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._lease = lease.total_seconds()
        self._monotonic = monotonic
        self._held: dict[str, _Slots] = {}
        self._ended: deque[_Ended] = deque()
        self._lock = Lock()
        line.each_turn(self._turn)

    def take(self, scopes: Sequence[LimitScope], token: str, /) -> Exceeded | None:
        """Let *token* call within each scope, or take nothing."""
        self._line.start()
        exceeded = self._line.ask(partial(self._take, scopes, token), None)
        if exceeded is None and (slotted := _slotted(scopes)):
            now = self._monotonic()
            with self._lock:
                self._held[token] = _Slots(slotted, now, now)
        return exceeded

    def release(self, scopes: Sequence[LimitScope], token: str, /) -> None:
        """Free what *token* holds: now, or at the next turn when the store is there again."""
        slotted, now = _slotted(scopes), self._monotonic()
        if not slotted:
            return
        with self._lock:
            held = self._held.pop(token, None)
            took = "" if held is None else f"{(now - held.since) * 1000:.3f}"
            self._ended += [_Ended(scope, token, took, now) for scope in slotted]
            # A permit that could not be reported within the lease is free by itself.
            while now - self._ended[0].at >= self._lease:
                self._ended.popleft()
        self._line.ask(self._free, None)

    def _take(self, scopes: Sequence[LimitScope], token: str) -> Exceeded | None:
        asked: list[Argument] = []
        for limit, _ in scopes:
            asked += (limit.interval * 1000, limit.tolerance * 1000, limit.concurrency or 0)
        told = self._run(scopes, "take", token, self._lease_ms, *asked)
        if not told:
            return None
        number, wait, spread = told
        name = scopes[number - 1].limit.name
        return Exceeded(name, LineWait(_span(wait), _span(spread)))

    def _turn(self) -> None:
        self._free()
        now = self._monotonic()
        with self._lock:
            due = [
                (token, held)
                for token, held in self._held.items()
                if now - held.renewed >= self._lease / 3
            ]
        if not due:
            return
        slots = [(scope, token) for token, held in due for scope in held.scopes]
        self._run([scope for scope, _ in slots], "renew", self._lease_ms, *(t for _, t in slots))
        for _, held in due:
            held.renewed = now

    def _free(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, deque()
        if not ended:
            return
        said = itertools.chain.from_iterable((one.token, one.held_ms) for one in ended)
        try:
            self._run([one.scope for one in ended], "release", *said)
        except BaseException:
            with self._lock:
                self._ended.extendleft(reversed(ended))
            raise

    def _run(self, scopes: Sequence[LimitScope], step: str, *what: Argument) -> list[Any]:
        keys = [self._key(kind, scope) for scope in scopes for kind in ("limit", "slots")]
        now: int
        told: list[Any]
        now, *told = self._line.client.run(_SCRIPT, keys, step, *what)
        self._line.told_time(now)
        return told

    def _key(self, kind: str, scope: LimitScope) -> str:
        part = key_part(scope.key, _LONGEST)
        return flow_key(self._line.prefix, kind, scope.limit.name, part)

    @property
    def _lease_ms(self) -> int:
        return round(self._lease * 1000)


def _slotted(scopes: Sequence[LimitScope]) -> list[LimitScope]:
    return [scope for scope in scopes if scope.limit.concurrency is not None]


def _span(milliseconds: str) -> timedelta:
    return timedelta(milliseconds=float(milliseconds))
