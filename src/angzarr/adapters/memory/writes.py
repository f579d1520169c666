"""Writes in this process: for tests. It forgets everything with the process."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock

from angzarr.analysis import write as rules
from angzarr.analysis.write import KEPT, WRITE_LEASE, Answer, Begun, Found, Write, WriteKey, Writes
from angzarr.clock import Clock, SystemClock


class MemoryWrites(Writes):
    """Writes in a dictionary; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._writes: dict[WriteKey, Write] = {}
        self._lock = Lock()

    def begin(
        self, key: WriteKey, fingerprint: str, token: str, *, lease: timedelta = WRITE_LEASE
    ) -> Found:
        """Take the request, or say how it stands."""
        now = self._clock.now()
        fresh = rules.begun(fingerprint, token, now, lease)
        with self._lock:
            found = rules.found(self._writes.get(key, fresh), fingerprint, token, now)
            if isinstance(found, Begun):
                self._writes[key] = fresh
            return found

    def finish(self, key: WriteKey, token: str, answer: Answer, *, keep: timedelta = KEPT) -> bool:
        """Remember the answer."""
        with self._lock:
            now = self._clock.now()
            made = rules.answered(self._writes.get(key), token, answer, now, keep)
            if made is not None:
                self._writes[key] = made
            return made is not None

    def forget(self, key: WriteKey, token: str) -> bool:
        """Free the key."""
        with self._lock:
            write = self._writes.get(key)
            mine = write is not None and write.token == token and write.answer is None
            if mine:
                del self._writes[key]
            return mine

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""
