"""Canary: whether the claim store could be reached the way workers reach it, and when not.

A planned outage is known; a machine that stands still for seconds is one that nobody planned. What
was away longer than leases last is found here, whatever the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.disturbances import LEASE_AT_RISK, SETTLE, Disturbance, Outage, What

#: Seconds between two looks, and after which a look has failed.
EVERY, PATIENCE = 0.25, 1.0
#: Seconds without an answer that are an absence.
SILENCE = 1.5
#: Seconds that the store must answer in one piece for every worker to renew its lease meanwhile:
#: renewed every 2 s, and a renewal that fails takes up to 2 s to do so.
ONE_RENEWAL = 4.0


class Canary:
    """Asks the store at *url* for a sign of life, from a thread of its own."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            retry=Retry(NoBackoff(), 0),
        )
        self._over = threading.Event()
        self._answered = [time.monotonic()]
        self._thread = threading.Thread(target=self._watch, name="chaos-canary", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Outage]:
        """Return the spans in which it did not answer."""
        self._over.set()
        self._thread.join()
        self._client.close()
        return silences(self._answered)

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self._client.ping()
            except redis.RedisError:
                continue
            self._answered.append(time.monotonic())


def silences(answered: Sequence[float]) -> list[Outage]:
    """Return the spans between two answers that are longer than a slow machine explains."""
    return [Outage(start=a, end=b) for a, b in pairwise(answered) if b - a > SILENCE]


def lapses(outages: Iterable[Outage]) -> list[Disturbance]:
    """Return the spans after which leases may have ended, of all workers.

    Absences with too little time between them for a renewal count as one.
    """
    merged: list[Outage] = []
    for outage in sorted((one for one in outages if not one.in_part), key=_start):
        if merged and outage.start - merged[-1].end < ONE_RENEWAL:
            last = merged.pop()
            merged.append(Outage(start=last.start, end=max(last.end, outage.end)))
        else:
            merged.append(outage)
    return [
        Disturbance(fault=0, what=What.LEASES_ENDED, start=one.start, end=one.end + SETTLE)
        for one in merged
        if one.end - one.start >= LEASE_AT_RISK
    ]


def _start(outage: Outage) -> float:
    return outage.start
