"""Claims, owner leases, logs of finished steps and the fleet of one process.

For tests and for the memory broker. Nothing here outlives the process or is seen by another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from angzarr.adapters.memory.facts import MemoryFactOutbox
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLogKey,
    too_many,
)
from angzarr.fleet import RELEASE_LIFE, SAID_LIFE, FleetRelease, Member
from angzarr.resilience.idempotency import (
    RECORD_LIFE,
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    Ending,
    InProgress,
    released_by,
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
        """True if *owner*'s lease runs."""
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
        outbox: MemoryFactOutbox | None = None,
        holders: MemoryPayloadHolders | None = None,
    ) -> None:
        self._leases = leases
        self._life = life
        self._clock = clock or SystemClock()
        #: Facts of settled claims, for a relay.
        self.outbox = outbox or MemoryFactOutbox()
        #: Who holds bodies of messages; endings release them.
        self.holders = holders or MemoryPayloadHolders(self._clock)
        self._lock = threading.Lock()
        self._records: dict[str, tuple[Record, datetime]] = {}
        #: Logs of finished steps by key and replay number, which `MemoryStepLog` writes.
        self.logs: dict[tuple[str, int], Any] = {}

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order."""
        with self._lock:
            return [self._claim(claim) for claim in claims]

    def owns(self, key: str, token: str, /, facts: Sequence[str] = ()) -> bool:
        """True if the delivery with *token* still holds *key*; its *facts* are kept then."""
        return self.while_held(key, token, partial(self.outbox.put, facts))

    def settle(self, key: str, token: str, ending: Ending, /, facts: Sequence[str] = ()) -> bool:
        """End the claim of *token*, or change nothing and return False."""
        return self.settle_all([ClaimEnd(key, token, ending, facts)])[0]

    def settle_all(self, ends: Sequence[ClaimEnd], /) -> list[bool]:
        """End each claim in order."""
        with self._lock:
            return [self._settle(*end) for end in ends]

    def while_held(self, key: str, token: str, step: Callable[[], object]) -> bool:
        """Do *step* if the delivery with *token* holds *key*, and say whether it does."""
        with self._lock:
            held = holds(self._read(key), token)
            if held:
                step()
            return held

    def _settle(self, key: str, token: str, ending: Ending, facts: Sequence[str]) -> bool:
        record = self._read(key)
        if record is None or not holds(record, token):
            return was_ended(record, token, ending)
        self._write(key, ended(record, ending), life_after(ending, self._life))
        self.outbox.put(facts)
        if (hold := released_by(ending)) is not None:
            self.holders.release([hold])
        if isinstance(ending, Complete) and ending.steps is not None:
            self.logs.pop((key, ending.steps), None)
        return True

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


@dataclass(slots=True)
class _Log:
    until: datetime
    steps: dict[str, FinishedStep] = field(default_factory=dict)
    undoing: str | None = None


class MemoryStepLog:
    """The logs of *store*'s claims, each kept for *life* after its last step."""

    def __init__(
        self,
        store: MemoryIdempotencyStore,
        *,
        life: timedelta = LOG_LIFE,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._life = life
        self._clock = clock or SystemClock()

    def add(self, place: StepLogKey, step: FinishedStep, /) -> bool:
        """Write *step* last, in place of one of its name."""

        def write() -> None:
            log = self._find(place) or _Log(self._clock.now())
            if step.name not in log.steps and len(log.steps) >= MOST_STEPS:
                raise too_many(step.name)
            log.steps.pop(step.name, None)
            log.steps[step.name] = step
            log.until, log.undoing = self._clock.now() + self._life, None
            self._store.logs[place.key, place.replay] = log

        return self._store.while_held(place.key, place.token, write)

    def read(self, place: StepLogKey, /) -> Logged:
        """The steps in the log."""
        log = self._find(place)
        return Logged() if log is None else Logged(tuple(log.steps.values()), log.undoing)

    def mark_undoing(
        self, place: StepLogKey, cause: str | None, /
    ) -> Sequence[FinishedStep] | None:
        """Note whether the steps are being undone, and return them."""
        found: list[FinishedStep] = []

        def mark() -> None:
            if (log := self._find(place)) is not None:
                log.undoing = cause
                found.extend(log.steps.values())

        return found if self._store.while_held(place.key, place.token, mark) else None

    def remove(self, place: StepLogKey, name: str, /) -> bool:
        """Forget the step *name*."""

        def forget() -> None:
            if (log := self._find(place)) is not None:
                log.steps.pop(name, None)
                if not log.steps:
                    del self._store.logs[place.key, place.replay]

        return self._store.while_held(place.key, place.token, forget)

    def _find(self, place: StepLogKey) -> _Log | None:
        log: _Log | None = self._store.logs.get((place.key, place.replay))
        return log if log is not None and log.until > self._clock.now() else None


class MemoryFleet:
    """The members that have one of *leases*; safe to use from many threads."""

    def __init__(
        self,
        leases: MemoryOwnerLeases,
        *,
        life: timedelta = RELEASE_LIFE,
        said_life: timedelta = SAID_LIFE,
        clock: Clock | None = None,
    ) -> None:
        self._leases = leases
        self._life = life
        self._said_life = said_life
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._said: dict[str, tuple[Member, datetime]] = {}
        self._releases: dict[str, FleetRelease] = {}

    def register(self, member: Member, /) -> None:
        """Keep what *member* says, and see its release."""
        now = self._clock.now()
        with self._lock:
            self._forget(now)
            self._said[member.owner] = (member, now)
            if member.release:
                new = FleetRelease(name=member.release, first_seen_at=now, last_seen_at=now)
                known = self._releases.get(member.release, new)
                self._releases[member.release] = replace(known, last_seen_at=now)

    def members(self) -> Sequence[Member]:
        """All whose lease runs, by owner."""
        with self._lock:
            found = [member for member, _ in self._said.values()]
        living = (member for member in found if self._leases.alive(member.owner))
        return sorted(living, key=lambda member: member.owner)

    def releases(self) -> Sequence[FleetRelease]:
        """All releases, in the order in which they were first seen."""
        with self._lock:
            return sorted(self._releases.values(), key=lambda one: (one.first_seen_at, one.name))

    def _forget(self, now: datetime) -> None:
        for owner in [one for one, (_, at) in self._said.items() if at <= now - self._said_life]:
            del self._said[owner]
        old = [one for one in self._releases.values() if one.last_seen_at <= now - self._life]
        for release in old:
            del self._releases[release.name]
