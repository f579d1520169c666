"""Claims and owner leases in this process's memory: for tests and for the memory broker's demos.

Nothing here outlives the process or is seen by another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from angzarr.clock import Clock, SystemClock
from angzarr.resilience.idempotency import (
    RECORD_LIFE,
    Claim,
    ClaimAnswer,
    Claimed,
    Complete,
    Ending,
    InProgress,
)
from angzarr.resilience.idempotency_rules import (
    Record,
    answer_of,
    ended,
    held_by,
    holds,
    life_after,
    was_ended,
)


class MemoryOwnerLeases:
    """Owner leases of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._until: dict[str, datetime] = {}

    def renew(self, owner: str, span: timedelta, /) -> None:
        """Let *owner*'s lease end *span* from now."""
        self._until[owner] = self._clock.now() + span

    def end(self, owner: str, /) -> None:
        """End *owner*'s lease now."""
        self._until.pop(owner, None)

    def alive(self, owner: str) -> bool:
        """Return whether *owner*'s lease runs."""
        until = self._until.get(owner)
        return until is not None and until > self._clock.now()


class MemoryIdempotencyStore:
    """Claims of this process, safe to use from many threads.

    An expired record is dropped when its key is next touched, or by `sweep`.
    """

    def __init__(
        self,
        leases: MemoryOwnerLeases,
        *,
        life: timedelta = RECORD_LIFE,
        clock: Clock | None = None,
    ) -> None:
        self._leases = leases
        self._life = life
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: dict[str, tuple[Record, datetime]] = {}
        #: Logs of finished steps by key and replay number, which `MemoryStepLog` writes.
        self.logs: dict[tuple[str, int], Any] = {}

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order."""
        with self._lock:
            return [self._claim(claim) for claim in claims]

    def owns(self, key: str, token: str, /) -> bool:
        """Return whether the delivery with *token* still holds *key*."""
        with self._lock:
            return holds(self._read(key), token)

    def settle(self, key: str, token: str, ending: Ending, /) -> bool:
        """End the claim of *token*, or change nothing and return False."""
        with self._lock:
            record = self._read(key)
            if record is None or not holds(record, token):
                return was_ended(record, token, ending)
            self._write(key, ended(record, ending), life_after(ending, self._life))
            if isinstance(ending, Complete) and ending.steps is not None:
                self.logs.pop((key, ending.steps), None)
            return True

    def while_held(self, key: str, token: str, step: Callable[[], object]) -> bool:
        """Do *step* if the delivery with *token* holds *key*, and say whether it does."""
        with self._lock:
            held = holds(self._read(key), token)
            if held:
                step()
            return held

    def sweep(self, limit: int = 1000) -> int:
        """Drop at most *limit* expired records and return how many."""
        with self._lock:
            now = self._clock.now()
            gone = [key for key, (_, until) in self._records.items() if until <= now][:limit]
            for key in gone:
                del self._records[key]
            return len(gone)

    def _claim(self, claim: Claim) -> ClaimAnswer:
        record = self._read(claim.key)
        answer = answer_of(record, claim, self._leases.alive)
        if isinstance(answer, Claimed):
            self._write(claim.key, held_by(claim, answer.starts, record), self._life)
            if (claim.key, claim.position.replay) in self.logs:
                answer = replace(answer, steps=True)
        elif isinstance(answer, InProgress) and record:
            self._write(claim.key, record, self._life)
        return answer

    def _read(self, key: str) -> Record | None:
        record, until = self._records.get(key, (None, None))
        if until is not None and until <= self._clock.now():
            del self._records[key]
            return None
        return record

    def _write(self, key: str, record: Record, life: timedelta) -> None:
        self._records[key] = (record, self._clock.now() + life)
