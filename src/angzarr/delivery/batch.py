"""Batch: one call of a handler for several events, which answers for each of them.

A handler is called with the list of its events, in order of arrival. If it returns, all of them are
handled; if it raises, the error counts for each of them; a `BatchResult` names those that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any, Final

from angzarr.delivery.context import Context
from angzarr.errors import ConfigurationError, CostBudgetSpentError
from angzarr.events.event import Event
from angzarr.resilience.breaker_guard import BreakerGuard

#: The most events of one batch: their messages, claims and results are held in memory together.
MOST_EVENTS: Final = 1_000
#: The longest that an event waits for others, in seconds: it is claimed, and counts as begun.
LONGEST_WAIT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Batch:
    """How many events a handler takes in one call, and how long the first waits for others.

    A batch is handed over once it has *size* events, or *wait* seconds after its first one came.
    Raises ConfigurationError for a size that is not from 2 to 1000 and a wait that is not
    above 0 and at most 60.
    """

    size: int
    wait: float

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if type(self.size) is not int or not 1 < self.size <= MOST_EVENTS:
            msg = f"Batch.size must be a whole number from 2 to {MOST_EVENTS}; got {self.size!r}"
            raise ConfigurationError(msg)
        is_number = isinstance(self.wait, int | float) and not isinstance(self.wait, bool)
        if not is_number or not 0 < self.wait <= LONGEST_WAIT:
            msg = (
                "Batch.wait must be a number of seconds above 0 and at most"
                f" {LONGEST_WAIT:g}; got {self.wait!r}"
            )
            raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch handler returns if some of its events failed.

    *errors* has the error of each event that failed, by its position in the list from 0. All other
    events are handled. An error counts as if the handler had raised it for that event alone.
    """

    errors: Mapping[int, Exception] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Given to a batch handler as its second argument: its deliveries, in the order of the list."""

    contexts: Sequence[Context]

    @cached_property
    def events(self) -> list[Event]:
        """The events with all their metadata, in the order of the list."""
        return [context.event for context in self.contexts]

    @cached_property
    def log(self) -> Any:
        """A logger that says the handler and the number of events on every line."""
        first = self.contexts[0]
        return first.make_log({"handler": first.delivery.handler, "events": len(self.contexts)})

    def breaker(self, name: str, *, key: object = None) -> BreakerGuard:
        """The breaker *name*, as `Context.breaker`; refused, it raises for the whole batch."""
        return self.contexts[0].breaker(name, key=key)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls a batch handler; *takes_context* says whether with a `BatchContext`."""

    function: Callable[..., Any]
    takes_context: bool

    def __call__(self, items: Sequence[BatchItem]) -> Any:
        """What the handler returns for *items*: an answer, or a coroutine with one."""
        events = [item.event for item in items]
        if not self.takes_context:
            return self.function(events)
        return self.function(events, BatchContext(contexts=[item.context for item in items]))


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One event, decoded, with the handler that takes it. Called, it is a batch of its own."""

    handler: BatchCall
    event: Any
    context: Context

    @property
    def is_over_budget(self) -> bool:
        """True if what its delivery may spend is spent: then it gets its error alone."""
        try:
            self.context.costs.check(self.context.delivery)
        except CostBudgetSpentError:
            return True
        return False

    def __call__(self) -> Any:
        """Handle this event alone; returns None or a coroutine, raises its error."""
        self.context.costs.check(self.context.delivery)
        answer = self.handler([self])
        if hasattr(answer, "__await__"):
            return _awaited(answer)
        _raise_first(answer)
        return None


async def _awaited(answer: Any) -> None:
    _raise_first(await answer)


def _raise_first(answer: Any) -> None:
    error = errors_of(answer, 1)[0]
    if error is not None:
        raise error


def errors_of(answer: Any, count: int) -> list[Exception | None]:
    """The error of each of *count* events, None for one that was handled.

    Raises TypeError or ValueError for an answer that says nothing of them: it must not pass for a
    success.
    """
    if answer is None:
        return [None] * count
    if not isinstance(answer, BatchResult):
        msg = (
            "a batch handler must return None or a BatchResult; it returned"
            f" {answer!r:.100} ({type(answer).__name__})"
        )
        raise TypeError(msg)
    for position, error in answer.errors.items():
        if type(position) is not int or not 0 <= position < count:
            msg = (
                f"BatchResult names the position {position!r:.50}, and the list has {count} events"
            )
            raise ValueError(msg)
        if not isinstance(error, Exception):
            msg = f"BatchResult must name errors; position {position} has {error!r:.100}"
            raise TypeError(msg)
    return [answer.errors.get(position) for position in range(count)]


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer for one event. Called, it returns None or raises that event's error.

    One error may be the answer for many events: each raises it with its first traceback.
    """

    error: Exception | None = None
    traceback: TracebackType | None = None
    #: Whether the handler raised it, and so did not say which event failed.
    for_all: bool = False

    def __call__(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(self.traceback)
