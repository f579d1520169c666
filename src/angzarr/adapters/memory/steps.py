"""Logs of finished steps in this process's memory, beside the claims there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLogKey,
    too_many,
)


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
        """Return what the log holds."""
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
