"""Compensation: undoing what an event set off, by the handler that its own handler names (A5).

The ledger commits `compensated` first, then the message is published, then the ledger notes that
the broker has it: whoever dies in between leaves an entry that falls due, and the same message is
published again, which the claim makes harmless. What the compensation itself does is an event
like any other: it is retried, and if it fails it is a dead letter of its own.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from angzarr.analysis.choosing import CHANGED
from angzarr.analysis.entry import Entry, Failure
from angzarr.analysis.ledger import Ledger
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.verb import Act, Verb, refusal
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.refusal import Refusal
from angzarr.events import headers as names
from angzarr.events.event import compensation_id_for, task_id_for

_JSON: Final = "application/json"
_BY_HAND: Final = "undo it by hand, then resolve the entry"
#: Commands read a body of any size.
_AT_A_TERMINAL: Final = "`angzarr dlq compensate` undoes it all the same"
#: Headers of the event that its compensation has, too.
_KEPT: Final = (
    names.EVENT_TYPE, names.DOMAIN, names.ROOT, names.EDITION, names.SEQUENCE,
    names.CORRELATION_ID, names.TENANT_ID, names.PRIORITY, names.CONFIG_PINS, names.OCCURRED_AT,
    names.TRACEPARENT,
)  # fmt: skip


class Call(NamedTuple):
    """A task to send. The same entry gives the same ids each time."""

    task: str
    task_id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    headers: Mapping[str, Any]


class Compensations(Protocol):
    """Which task undoes which, and how to send one."""

    @abstractmethod
    def of(self, handler: str, /) -> str:
        """Return the task that undoes what *handler* does, or an empty string."""

    @abstractmethod
    def send(self, call: Call, /) -> None:
        """Publish *call* and return once it is confirmed; raises BrokerUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensator:
    """Compensates entries; raises what `Replayer` raises."""

    ledger: Ledger
    replayer: Replayer
    compensations: Compensations
    #: Says why people may have nothing sent now, or nothing.
    barred: Callable[[], str] = lambda: ""

    def problem(self, entry: Entry, failure: Failure) -> str:
        """Return why *entry* cannot be compensated, or an empty string; changes nothing."""
        if why := refusal(entry, Verb.COMPENSATE) or self._barred():
            return why
        called = self._call(entry, failure)
        return called if isinstance(called, Refusal) else ""

    def compensate(self, entry: Entry, failure: Failure, *, by: str, note: str = "") -> str:
        """Send the compensation of *entry*; return why not, or an empty string once it is sent.

        After BrokerUnavailable the entry is compensated: the analysis worker sends it.
        """
        if why := refusal(entry, Verb.COMPENSATE) or self._barred():
            return why
        called = self._call(entry, failure)
        if isinstance(called, Refusal):
            return called
        act = Act(entry_id=entry.id, revision=entry.revision, verb=Verb.COMPENSATE, note=note)
        if self.ledger.act([act], by=by) != [True]:
            return CHANGED
        self._send(entry, called)
        return ""

    def publish(self, entry: Entry, failure: Failure) -> str:
        """Send what *entry*, which is compensated, still waits for; return why it cannot be."""
        called = self._call(entry, failure)
        if isinstance(called, Refusal):
            return called
        self._send(entry, called)
        return ""

    def _barred(self) -> str:
        why = self.barred()
        return f"{why}, or {_BY_HAND}" if why else ""

    def _send(self, entry: Entry, called: Call) -> None:
        self.compensations.send(called)
        self.ledger.mark_compensated(entry.id)

    def _call(self, entry: Entry, failure: Failure) -> Call | Refusal:
        task = self.compensations.of(entry.handler_name)
        if not task:
            return Refusal(no_compensation(entry.handler_name))
        letter = self.replayer.sendable(failure, too_large=_AT_A_TERMINAL)
        return letter if isinstance(letter, Refusal) else call_of(letter, task)


def no_compensation(handler: str) -> str:
    """Say that *handler* names no compensation, and what to do."""
    name = handler or "its handler"
    return f"{name} names no compensation: register it with compensation=…, or {_BY_HAND}"


def call_of(letter: DeadLetter, task: str) -> Call | Refusal:
    """Return the call that gives *task* what *letter*'s handler was given.

    Its event is the same but for its id: that of what it undoes is its cause. What followed the
    original (links, a chain, a chord) does not follow its compensation.
    """
    message = letter.message
    if message.content_type != _JSON:
        return Refusal(f"its message is {message.content_type}, not JSON: {_BY_HAND}")
    try:
        args, kwargs, _ = json.loads(message.body)
        call = tuple(args), dict(kwargs)
    except (ValueError, TypeError, RecursionError):
        return Refusal(f"its message holds no arguments: {_BY_HAND}")
    undone = letter.event.id if letter.event else message.id
    event_id = compensation_id_for(undone, letter.handler, task)
    headers = {name: message.headers[name] for name in _KEPT if name in message.headers}
    headers |= {names.EVENT_ID: event_id, names.CAUSATION_ID: undone, names.COMPENSATES: letter.id}
    return Call(task, task_id_for(event_id, task), *call, headers)
