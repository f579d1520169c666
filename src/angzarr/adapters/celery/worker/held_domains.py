"""HeldDomains: domains that are held back for a poison wave, as all processes of a worker see them.

Without a flow store a child finds out by itself, and its parent stops consuming: only from queues
that serve that one domain (decisions 27). With one the parent hears it there, and when it is over.
"""

from __future__ import annotations

import mmap
import struct
import time
from datetime import datetime

from angzarr.clock import SystemClock

#: Seconds of `time.monotonic`, one clock for all processes of a machine, until when a domain is
#: held back: whether the machine's other clock is right, or set meanwhile, matters to none of them.
_UNTIL = struct.Struct("d")
#: Domains of one app that are told apart; others are postponed only.
_MOST = 512


class HeldDomains:
    """One shared page, made before the pool forks. A torn or lost write costs one wait, no more."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _MOST * _UNTIL.size)
        self._places: dict[str, int] = {}

    def begin(self, domains: list[str]) -> None:
        """Give each of *domains* its place; called before the pool forks."""
        self._places = {name: at for at, name in enumerate(sorted(domains)[:_MOST])}
        for name in self._places:
            self._write(name, 0.0)

    def hold(self, domain: str, until: datetime) -> None:
        """Let every process of this worker know that *domain* is held back until then.

        *until* is of the fleet's time, as `SystemClock` tells it.
        """
        if domain in self._places:
            left = (until - SystemClock().now()).total_seconds()
            self._write(domain, time.monotonic() + left)

    def now(self) -> set[str]:
        """Return the domains that are held back."""
        at = time.monotonic()
        return {name for name in self._places if self._read(name) > at}

    def _write(self, domain: str, until: float) -> None:
        _UNTIL.pack_into(self._page, self._places[domain] * _UNTIL.size, until)

    def _read(self, domain: str) -> float:
        (until,) = _UNTIL.unpack_from(self._page, self._places[domain] * _UNTIL.size)
        return float(until)
