"""Decisions of aggregates: given what happened, when a command comes, then this happens.

The class decides as it does behind a book: events and the command are written as JSON and read
again. No book is kept, no handler runs, no writer races: for those there is `angzarr_worker`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.command import Command
from angzarr.errors import CommandRejectedError
from angzarr.events.event import Event, event_type_of, to_json

#: What is compared of an event: its type, and its data as JSON.
Told = tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An aggregate's history, before the command."""

    kind: type[Aggregate[Any]]
    events: Sequence[object]
    root: str

    @property
    def state(self) -> Any:
        """The state that the events have led to."""
        return self._aggregate().state

    def when(self, command: object) -> CommandOutcome:
        """Let the aggregate decide *command*; raises what that raises, but for its rejection."""
        event = _event(command, self.kind.domain, self.root)
        try:
            events = self._aggregate().decide(Command(event=event))
        except CommandRejectedError as error:
            return CommandOutcome(command=command, rejection=error)
        return CommandOutcome(command=command, events=[(one.type, one.data) for one in events])

    def _aggregate(self) -> Aggregate[Any]:
        domain = self.kind.domain
        events = [
            replace(_event(one, domain, self.root), sequence=number)
            for number, one in enumerate(self.events)
        ]
        address = Address(domain, self.root)
        book = Book(address=address, events=tuple(events), next_sequence=len(events))
        return self.kind(book)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """What became of the command."""

    command: object
    events: Sequence[Told] = field(default=())
    rejection: CommandRejectedError | None = None

    def then(self, *events: object) -> None:
        """Fail unless exactly these *events* happened, in this order; none: nothing happened."""
        if self.rejection is not None:
            msg = f"{self._what} was rejected: {self.rejection}"
            raise AssertionError(msg) from self.rejection
        wanted = [_told(one) for one in events]
        if list(self.events) != wanted:
            msg = f"{self._what} led to{_listed(self.events)}\nnot to{_listed(wanted)}"
            raise AssertionError(msg)

    def then_rejected(self, match: str = "") -> None:
        """Fail unless the command was rejected, for a reason in which *match* is found (regex)."""
        if self.rejection is None:
            msg = f"{self._what} was not rejected, it led to{_listed(self.events)}"
            raise AssertionError(msg)
        if not re.search(match, str(self.rejection)):
            msg = f"{self._what} was rejected, but not for {match!r}: {self.rejection}"
            raise AssertionError(msg)

    @property
    def _what(self) -> str:
        return f"{type(self.command).__name__}"


def given(kind: type[Aggregate[Any]], *events: object, root: str = "root-1") -> Given:
    """The aggregate of *kind* at *root* to which *events* have happened."""
    return Given(kind=kind, events=events, root=root)


def _event(one: object, domain: str, root: str) -> Event:
    return Event(
        id="test", type=event_type_of(one), data=to_json(one), domain=domain or None, root=root
    )


def _told(one: object) -> Told:
    return event_type_of(one), to_json(one)


def _listed(events: Sequence[Told]) -> str:
    return "".join(f"\n  {type_} {data}" for type_, data in events) or " nothing"
