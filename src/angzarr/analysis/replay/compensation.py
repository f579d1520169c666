"""Compensation: undoing what an event set off, by the handler that its own handler names (A5).

The ledger commits `compensated` first, then the message is published, then the ledger notes that
the broker has it: a crash in between leaves an entry that falls due, and the same message is
published again, which the claim makes harmless. A skip follows it where later events wait behind
the entry. What the compensation itself does is an event like any other: it is retried, and if it
fails it is a dead letter of its own.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from angzarr.analysis.ledger.entry import Entry, EntryDetail, HistoryLine
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import Act, Verb, asks_for_skip, passed, refusal
from angzarr.analysis.replay.bulk_actions import CHANGED
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.replay.skip import Skips, kept_reason, place_of, reason_of
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.sealed_letters import has_sealed_body
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
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
    #: The message that is undone, if that came encrypted: then this one is, too.
    origin: SealedOrigin | None = None


class _Plan(NamedTuple):
    """The message to send, and the letter that it is made of."""

    call: Call
    letter: DeadLetter


class Compensations(Protocol):
    """Which task undoes which, and how to send one."""

    @abstractmethod
    def of(self, handler: str, /) -> str:
        """The task that undoes what *handler* does, or an empty string."""

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
        """Why *entry* cannot be compensated, or an empty string; changes nothing."""
        if why := refusal(entry, Verb.COMPENSATE) or self._barred():
            return why
        plan = self._plan(entry, failure)
        return plan if isinstance(plan, Refusal) else ""

    def compensate(self, entry: Entry, failure: Failure, *, by: str, note: str = "") -> str:
        """Send the compensation of *entry*; return why not, or an empty string once it is sent.

        After BrokerUnavailable the entry is compensated: the analysis worker sends it.
        """
        if why := refusal(entry, Verb.COMPENSATE) or self._barred():
            return why
        plan = self._plan(entry, failure)
        if isinstance(plan, Refusal):
            return plan
        verb = Verb.COMPENSATE
        skips = asks_for_skip(entry, verb) and place_of(failure) is not None
        act = Act(entry_id=entry.id, revision=entry.revision, verb=verb, note=note, skips=skips)
        if self.ledger.act([act], by=by) != [True]:
            return CHANGED
        line = HistoryLine(at=self.replayer.clock.now(), who=by, what=verb.value, detail=note)
        done = replace(entry, replays=entry.replays + skips)
        self._send(done, plan, reason_of(line) if skips or passed(entry) else None)
        return ""

    def publish(self, detail: EntryDetail) -> str:
        """Send what an entry that is compensated still waits for; return why it cannot be."""
        entry = detail.entry
        plan = self._plan(entry, detail.failure)
        if isinstance(plan, Refusal):
            return plan
        self._send(entry, plan, kept_reason(detail.history) if passed(entry) else None)
        return ""

    def _barred(self) -> str:
        why = self.barred()
        return f"{why}, or {_BY_HAND}" if why else ""

    def _send(self, entry: Entry, plan: _Plan, skip: str | None) -> None:
        """Send the compensation, then the skip if it has a reason: then both are with the broker.

        What died in between sends both again, which their claims make harmless.
        """
        self.compensations.send(plan.call)
        if skip is None:
            self.ledger.mark_compensated(entry.id)
        else:
            Skips(replayer=self.replayer).send(entry, plan.letter, skip)

    def _plan(self, entry: Entry, failure: Failure) -> _Plan | Refusal:
        task = self.compensations.of(entry.handler_name)
        if not task:
            return Refusal(no_compensation(entry.handler_name))
        letter = self.replayer.sendable(failure, too_large=_AT_A_TERMINAL)
        if isinstance(letter, Refusal):
            return letter
        opened = self.replayer.unsealed(letter, _AT_A_TERMINAL)
        if isinstance(opened, Refusal):
            return opened
        call = call_of(opened, task)
        if isinstance(call, Refusal):
            return call
        origin = origin_in(letter.message.headers) if has_sealed_body(letter) else None
        return _Plan(call._replace(origin=origin), letter)


def no_compensation(handler: str) -> str:
    """Say that *handler* names no compensation, and what to do."""
    name = handler or "its handler"
    return f"{name} names no compensation: register it with compensation=…, or {_BY_HAND}"


def call_of(letter: DeadLetter, task: str) -> Call | Refusal:
    """The call that gives *task* what *letter*'s handler was given.

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
