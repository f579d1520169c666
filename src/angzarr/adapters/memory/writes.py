"""Writes in this process: for tests. It forgets everything with the process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Lock

from angzarr.analysis.ledger import idempotent_requests as rules
from angzarr.analysis.ledger.idempotent_requests import (
    KEPT,
    WRITE_LEASE,
    Found,
    RecordedAnswer,
    RequestBegun,
    RequestRecord,
    WriteKey,
    Writes,
)
from angzarr.clock import Clock, SystemClock


class MemoryWrites(Writes):
    """Writes in a dictionary; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._writes: dict[WriteKey, RequestRecord] = {}
        self._lock = Lock()

    def begin(
        self, key: WriteKey, fingerprint: str, token: str, *, lease: timedelta = WRITE_LEASE
    ) -> Found:
        """Take the request, or say how it stands."""
        now = self._clock.now()
        fresh = rules.begun(fingerprint, token, now, lease)
        with self._lock:
            found = rules.found(self._writes.get(key, fresh), fingerprint, token, now)
            if isinstance(found, RequestBegun):
                self._writes[key] = replace(fresh, choice=found.choice)
            return found

    def choose(self, key: WriteKey, token: str, choice: bytes) -> bool:
        """Remember what the request acts on."""
        with self._lock:
            made = rules.chosen(self._writes.get(key), token, choice)
            if made is not None:
                self._writes[key] = made
            return made is not None

    def finish(
        self, key: WriteKey, token: str, answer: RecordedAnswer, *, keep: timedelta = KEPT
    ) -> bool:
        """Remember the answer."""
        with self._lock:
            now = self._clock.now()
            made = rules.answered(self._writes.get(key), token, answer, now, keep)
            if made is not None:
                self._writes[key] = made
            return made is not None

    def forget(self, key: WriteKey, token: str) -> bool:
        """Free the request."""
        with self._lock:
            write = self._writes.get(key)
            if write is None or not rules.is_of(write, token):
                return False
            kept = rules.freed(write, self._clock.now())
            if kept is None:
                del self._writes[key]
            else:
                self._writes[key] = kept
            return True

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""
