"""Logs of finished steps on Redis: one hash each, in the slot of the record of its claim."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from angzarr.adapters.redis.client import RedisClient, whole_ms
from angzarr.adapters.redis.idempotency import DEFAULT_PREFIX, log_of
from angzarr.adapters.redis.link import Argument, Script
from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLogKey,
    too_many,
)

_CHANGE = Script("finished_steps.lua")
#: What the script answers where the claim is lost, and where the log is full.
_LOST, _FULL = 0, -1
_STEP = "s:"


class RedisStepLog:
    """Logs under *prefix*, each kept for *life* after its last step, as Redis counts it."""

    def __init__(
        self, client: RedisClient, *, prefix: str = DEFAULT_PREFIX, life: timedelta = LOG_LIFE
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._life_ms = whole_ms(life)

    def add(self, place: StepLogKey, step: FinishedStep, /) -> bool:
        """Write *step* last, in place of one of its name."""
        told = json.dumps([step.undo, step.data])
        answer = self._change(place, "add", step.name, told, self._life_ms, MOST_STEPS)
        if answer == _FULL:
            raise too_many(step.name)
        return bool(answer != _LOST)

    def read(self, place: StepLogKey, /) -> Logged:
        """Return what the log holds."""
        flat = self._client.execute("HGETALL", log_of(self._record(place), place.replay))
        return _logged(flat)

    def mark_undoing(
        self, place: StepLogKey, cause: str | None, /
    ) -> Sequence[FinishedStep] | None:
        """Note whether the steps are being undone, and return them."""
        answer = self._change(place, "mark", *([] if cause is None else [cause]))
        return None if answer == _LOST else _logged(answer).steps

    def remove(self, place: StepLogKey, name: str, /) -> bool:
        """Forget the step *name*."""
        return bool(self._change(place, "remove", name) != _LOST)

    def _record(self, place: StepLogKey) -> str:
        return f"{self._prefix}:{place.key}"

    def _change(self, place: StepLogKey, verb: str, *args: Argument) -> Any:
        record = self._record(place)
        keys = (record, log_of(record, place.replay))
        return self._client.run_keys(_CHANGE, keys, place.token, verb, *args)


def _logged(flat: Sequence[str]) -> Logged:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    steps = [_numbered(name, text) for name, text in fields.items() if name.startswith(_STEP)]
    return Logged(tuple(step for _, step in sorted(steps)), fields.get("undoing"))


def _numbered(field: str, text: str) -> tuple[int, FinishedStep]:
    """Read one field; what is no step of ours is one that nobody can undo, and is told as that."""
    number, _, told = text.partition(":")
    try:
        undo, data = json.loads(told)
        return int(number), FinishedStep(field.removeprefix(_STEP), str(undo), str(data))
    except (ValueError, TypeError):
        return 0, FinishedStep(field.removeprefix(_STEP), "")
