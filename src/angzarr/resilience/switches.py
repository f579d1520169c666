"""Switches: what people hold back or drop while the fleet runs, by handler, type, tenant, domain.

    paused   its deliveries wait as long as it takes; none uses an attempt or grows too old
    dropped  its deliveries are skipped for good, each with a fact that says by whom and why

The nouns and the ports; which switch holds for a delivery is `switch_rules`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from angzarr.runtime.text import printable

#: How many switches there may be: each process keeps them all in memory.
MOST: Final = 1000
#: Changes that are remembered.
REMEMBERED: Final = 10_000

_WILD: Final = frozenset("*?[")


class Action(StrEnum):
    """What a switch does to the deliveries that it is about."""

    PAUSE = "pause"
    DROP = "drop"


class Selector(NamedTuple):
    """Which deliveries a switch is about: those that fit all that is said. Nothing said: all."""

    #: A handler's name, or a pattern of names such as ``shop.*`` (``*``, ``?``, ``[…]``).
    handler: str | None = None
    event_type: str | None = None
    tenant: str | None = None
    domain: str | None = None

    @property
    def named(self) -> Mapping[str, str]:
        """What it says, by part; a part that a later release adds changes nothing for others."""
        return {part: name for part, name in self._asdict().items() if name is not None}

    @property
    def id(self) -> str:
        """Twelve hex digits: the same for the same selector, so there is one switch for it."""
        said = json.dumps(self.named, ensure_ascii=True, sort_keys=True).encode()
        return hashlib.blake2b(said, digest_size=6).hexdigest()

    @property
    def is_pattern(self) -> bool:
        """Whether it names handlers by a pattern."""
        return self.handler is not None and not _WILD.isdisjoint(self.handler)

    def __str__(self) -> str:
        meant = ", ".join(f"{part.replace('_', ' ')} {name}" for part, name in self.named.items())
        return printable(meant or "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch: what is paused or dropped, by whom, why, since when and how long."""

    selector: Selector
    action: Action
    by: str
    reason: str
    at: datetime
    #: When it ends by itself; None: somebody must end it.
    until: datetime | None = None
    #: False: a newer release wrote more of what it does than is known here. It is a pause then,
    #: since what waits can still be dropped.
    understood: bool = True

    @property
    def id(self) -> str:
        """The selector's id."""
        return self.selector.id

    def is_over(self, now: datetime) -> bool:
        """Tell whether it has ended by itself."""
        return self.until is not None and now >= self.until

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        word = "paused" if self.action is Action.PAUSE else "dropped"
        newer = "" if self.understood else "; a newer release wrote it, its pause is to be safe"
        return printable(f"{word} by {self.by}{why} (switch {self.id}, {self.selector}{newer})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchChange:
    """What somebody did to the switch of a selector; nothing after it: resumed."""

    #: Unique among the changes of one store.
    id: str
    switch_id: str
    #: None: an entry was removed that nobody could read.
    selector: Selector | None
    #: As far as it could be read.
    before: Switch | None
    after: Switch | None
    by: str
    reason: str
    at: datetime

    @property
    def word(self) -> str:
        """What was done: pause, drop or resume."""
        return "resume" if self.after is None else self.after.action.value


class Switches(Protocol):
    """The switches as a process knows them. No verb raises.

    A store that is away changes nothing: what is known goes on to hold, so that what a person
    paused stays paused. A process that never heard of any lets its deliveries through.
    """

    def any(self) -> bool:
        """Tell whether there are any: in memory, but the first time the store is asked, once."""

    def of(self, subject: Selector, /) -> Switch | None:
        """Return the switch that holds for *subject* now, as far as is known; asks nobody."""

    def now(self) -> datetime:
        """Return the time by which switches begin and end."""


class SwitchControls(Protocol):
    """What people see of switches and do with them; raises StoreUnavailable."""

    def put(
        self,
        selector: Selector,
        action: Action,
        /,
        *,
        by: str,
        reason: str = "",
        until: datetime | timedelta | None = None,
    ) -> Switch:
        """Pause or drop what *selector* means, in place of what holds for just that selector.

        *until*: a time, or how long from now. Raises ConfigurationError for what is no switch,
        and for one more than `MOST`.
        """

    def resume(self, ids: Sequence[str], /, *, by: str, reason: str = "") -> Sequence[Switch]:
        """End the switches of *ids*; return those that there were.

        What lies there as one of *ids* and cannot be read is removed. Raises ConfigurationError
        for a *by* or *reason* that cannot be told.
        """

    def switches(self) -> Sequence[Switch]:
        """Return all that hold, the oldest first."""

    def unreadable(self) -> Sequence[str]:
        """Return the ids of entries that hold nothing, since nobody here can read whom they mean.

        Garbage, or what a newer release wrote; `resume` removes them.
        """

    def history(self, limit: int) -> Sequence[SwitchChange]:
        """Return the last *limit* changes, oldest first; those before `REMEMBERED` are gone."""


class SwitchWatch(Protocol):
    """Told of switches; it must not raise, and not take long."""

    def changed(self, change: SwitchChange, /) -> None:
        """See a change that this process made."""

    def heard(self, before: Mapping[str, Switch], after: Mapping[str, Switch], /) -> None:
        """See that this process honours other switches than before, by their ids."""
