"""Compensation: the steps that a handler has finished, and what undoes each (spec D8).

A step is in a durable log before its handler goes on: after a kill, the next delivery knows what to
undo. The log names functions, it never holds them: what is called is registered.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from angzarr.delivery.delivery import Delivery
from angzarr.errors import ConfigurationError, DuplicateHandler, UnserializableEvent

#: Steps that the log of one delivery holds at most.
MOST_STEPS = 100
#: Longest data of a step, in characters of JSON.
LONGEST_DATA = 16 * 1024
#: Longest name of a step or of an undo function, in characters.
LONGEST_NAME = 200
#: How long a log is kept after the last step was added to it.
LOG_LIFE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class CompensationAction:
    """The undo of a step called `name`: `execute`, registered with ``@app.undo``.

    It is called with `data`, a JSON value, perhaps more than once and in another process.
    """

    name: str
    execute: Callable[[Any], Any]
    data: Any = None


class FinishedStep(NamedTuple):
    """A finished step: its name, that of the function that undoes it, and its data as JSON text."""

    name: str
    undo: str
    data: str = "null"


class StepLogKey(NamedTuple):
    """Whose log it is. Who no longer holds the claim of `key` by `token` changes nothing in it."""

    key: str
    token: str
    replay: int = 0


class Logged(NamedTuple):
    """The content of a log: its steps, oldest first, and why they are being undone.

    `undoing` is None while the handler goes forward.
    """

    steps: Sequence[FinishedStep] = ()
    undoing: str | None = None


class StepLog(Protocol):
    """Where finished steps are kept, beside the claims. Raises StoreUnavailable as these do.

    Each verb is atomic and safe to send twice. A completed claim takes its log along
    (`Complete.steps`).
    """

    def add(self, place: StepLogKey, step: FinishedStep, /) -> bool:
        """Write *step* last, in place of one of its name; from now on the handler goes forward.

        Return False, having written nothing, if the claim is lost. Raises ConfigurationError
        beyond `MOST_STEPS`.
        """

    def read(self, place: StepLogKey, /) -> Logged:
        """The content of the log; the claim may be another's."""

    def mark_undoing(
        self, place: StepLogKey, cause: str | None, /
    ) -> Sequence[FinishedStep] | None:
        """Note that the steps are being undone because of *cause*, or with None no longer.

        Return them, oldest first; None if the claim is lost.
        """

    def remove(self, place: StepLogKey, name: str, /) -> bool:
        """Forget the step *name*, which is undone; return False if the claim is lost."""


class Undo(NamedTuple):
    """A function that undoes a step."""

    name: str
    function: Callable[[Any], Any]
    is_async: bool


@dataclass(slots=True)
class Undos:
    """The undo functions of an app, by name."""

    _by_name: dict[str, Undo] = field(default_factory=dict)

    def add(self, name: str, function: Callable[[Any], Any]) -> None:
        """Register *function*; raises DuplicateHandler if *name* is another one's."""
        _check_name(name, "an undo function")
        _check_takes_one(name, function)
        known = self._by_name.get(name)
        if known is not None and known.function is not function:
            msg = f"{name!r} is registered twice to undo a step: rename one, or pass name=…"
            raise DuplicateHandler(msg)
        self._by_name[name] = Undo(name, function, inspect.iscoroutinefunction(function))

    def get(self, name: str) -> Undo | None:
        """The function that is registered as *name*."""
        return self._by_name.get(name)

    def asynchronous(self) -> list[str]:
        """The names of those that are coroutine functions."""
        return [undo.name for undo in self._by_name.values() if undo.is_async]

    def step(self, action: CompensationAction) -> FinishedStep:
        """*action* as the log keeps it.

        Raises ConfigurationError for a function that is not registered and UnserializableEvent for
        data that are no JSON.
        """
        _check_name(action.name, "a step")
        for undo in self._by_name.values():
            if undo.function is action.execute:
                return FinishedStep(action.name, undo.name, _json(action))
        msg = (
            f"step {action.name!r} names {action.execute!r}, which no other process could find:"
            " give it a function of a module and put @app.undo above it"
        )
        raise ConfigurationError(msg)

    def __len__(self) -> int:
        return len(self._by_name)


class Undone(NamedTuple):
    """The results for the steps of a failed run, in the order in which they were undone."""

    undone: Sequence[str] = ()
    failed: Sequence[str] = ()
    #: Not tried: no undo could run where the delivery ended.
    left: Sequence[str] = ()


def step_log_key(delivery: Delivery) -> StepLogKey:
    """Where the steps of *delivery* are."""
    return StepLogKey(delivery.key, delivery.token, delivery.position.replay)


def to_undo(
    logged: Sequence[FinishedStep], unwritten: Mapping[str, FinishedStep]
) -> list[FinishedStep]:
    """The steps in the order in which they are undone: the last one first.

    *unwritten* are those of which no store said that it has them; they were finished last.
    """
    written = (step for step in logged if step.name not in unwritten)
    return [*written, *unwritten.values()][::-1]


def too_many(name: str) -> ConfigurationError:
    """The error of a log that is full."""
    return ConfigurationError(
        f"step {name!r} is one more than the {MOST_STEPS} that a delivery may have: register one"
        " step for many, with a list as its data"
    )


def _json(action: CompensationAction) -> str:
    try:
        text = json.dumps(action.data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the data of step {action.name!r} are not JSON: {error}"
        raise UnserializableEvent(msg) from error
    if len(text) > LONGEST_DATA:
        msg = (
            f"the data of step {action.name!r} have {len(text)} characters of JSON, of"
            f" {LONGEST_DATA} allowed: keep ids in them, and look the rest up when undoing"
        )
        raise UnserializableEvent(msg)
    return text


def _check_name(name: object, what: str) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()):
        msg = f"{what} needs a name of 1 to {LONGEST_NAME} printable characters, not {name!r:.300}"
        raise ConfigurationError(msg)


def _check_takes_one(name: str, function: Callable[[Any], Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        msg = f"{name} cannot undo a step: it is called with one value, the step's data ({error})"
        raise ConfigurationError(msg) from error
