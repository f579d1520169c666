"""Switches: what people hold back or drop while the fleet runs, by handler, type, tenant, domain.

    paused   its deliveries wait as long as it takes; none uses an attempt or grows too old
    dropped  its deliveries are skipped for good, each with a fact that says by whom and why

The nouns, the ports, and the pure rule that says which switch holds for a delivery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol
from unicodedata import category

from angzarr.errors import ConfigurationError
from angzarr.runtime.text import printable

#: How many switches there may be: each process keeps them all in memory.
MOST: Final = 1000
#: Changes that are remembered.
REMEMBERED: Final = 10_000

_WILD: Final = frozenset("*?[")


class SwitchAction(StrEnum):
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
    """One switch: the deliveries that it pauses or drops, by whom, why, since when and how long."""

    selector: Selector
    action: SwitchAction
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
        """True if it has ended by itself."""
        return self.until is not None and now >= self.until

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        word = "paused" if self.action is SwitchAction.PAUSE else "dropped"
        newer = "" if self.understood else "; a newer release wrote it, its pause is to be safe"
        return printable(f"{word} by {self.by}{why} (switch {self.id}, {self.selector}{newer})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchChange:
    """One change to the switch of a selector; nothing after it: resumed."""

    #: Unique among the changes of one store.
    id: str
    switch_id: str
    #: None: an unreadable entry was removed.
    selector: Selector | None
    #: As far as it could be read.
    before: Switch | None
    after: Switch | None
    by: str
    reason: str
    at: datetime

    @property
    def word(self) -> str:
        """The action of the change: pause, drop or resume."""
        return "resume" if self.after is None else self.after.action.value


class Switches(Protocol):
    """The switches as a process knows them. No verb raises.

    A store that is away changes nothing: the known switches go on to hold, so that what a person
    paused stays paused. A process that never heard of any lets its deliveries through.
    """

    def any(self) -> bool:
        """True if there are any: in memory, but the first time the store is asked, once."""

    def of(self, subject: Selector, /) -> Switch | None:
        """The switch that holds for *subject* now, as far as is known, without asking."""

    def now(self) -> datetime:
        """The time by which switches begin and end."""


class SwitchControls(Protocol):
    """What people see of switches and do with them; raises StoreUnavailable."""

    def put(
        self,
        selector: Selector,
        action: SwitchAction,
        /,
        *,
        by: str,
        reason: str = "",
        until: datetime | timedelta | None = None,
    ) -> Switch:
        """Pause or drop what *selector* means, in place of what holds for just that selector.

        *until*: a time, or how long from now. Raises ConfigurationError for an invalid switch,
        and for one more than `MOST`.
        """

    def resume(self, ids: Sequence[str], /, *, by: str, reason: str = "") -> Sequence[Switch]:
        """End the switches of *ids*; return those that there were.

        What lies there as one of *ids* and cannot be read is removed. Raises ConfigurationError
        for a *by* or *reason* that cannot be shown.
        """

    def switches(self) -> Sequence[Switch]:
        """All that hold, the oldest first."""

    def unreadable(self) -> Sequence[str]:
        """The ids of entries that hold nothing, since this release cannot read them.

        Garbage, or what a newer release wrote; `resume` removes them.
        """

    def history(self, limit: int) -> Sequence[SwitchChange]:
        """The last *limit* changes, oldest first; those before `REMEMBERED` are gone."""


class SwitchWatch(Protocol):
    """Hears of switches; it must not raise, and not take long."""

    def changed(self, change: SwitchChange, /) -> None:
        """See a change that this process made."""

    def heard(self, before: Mapping[str, Switch], after: Mapping[str, Switch], /) -> None:
        """See that this process honours other switches than before, by their ids."""


#: Longest part of a selector and longest reason, in characters: both go into facts and log lines.
LONGEST: Final = 500
#: Control characters, and what else ends a line: a log line or a terminal would act on them.
_NO_TEXT: Final = frozenset({"Cc", "Zl", "Zp"})
_CENTURY: Final = timedelta(days=36525)
#: How long a paused delivery waits at least, and at most.
SHORTEST_WAIT: Final = timedelta(seconds=2)
LONGEST_WAIT: Final = timedelta(seconds=60)


class SwitchSet:
    """All switches at one moment, arranged so that a delivery's is found with few look-ups."""

    def __init__(self, switches: Iterable[Switch] = ()) -> None:
        self.by_id: Mapping[str, Switch] = {switch.id: switch for switch in switches}
        found = self.by_id.values()
        self._patterns = [switch for switch in found if switch.selector.is_pattern]
        self._exact = {one.selector: one for one in found if not one.selector.is_pattern}
        #: What the exact ones say something of; few, however many switches there are.
        self._shapes = {tuple(part is not None for part in selector) for selector in self._exact}

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def of(self, subject: Selector, now: datetime) -> Switch | None:
        """The switch that holds for *subject*, a delivery's names, *now*.

        Of several a pause wins over a drop: waiting events can still be dropped, dropped ones
        are gone. Of several pauses the oldest is named.
        """
        found = [switch for switch in self._matching(subject) if not switch.is_over(now)]
        return min(found, key=_rank, default=None)

    def _matching(self, subject: Selector) -> Iterator[Switch]:
        for shape in self._shapes:
            named = (part if said else None for part, said in zip(subject, shape, strict=True))
            switch = self._exact.get(Selector(*named))
            if switch is not None:
                yield switch
        for switch in self._patterns:
            if fits(switch.selector, subject):
                yield switch


def fits(selector: Selector, subject: Selector) -> bool:
    """True if *selector* means *subject*, a delivery's names."""
    (pattern, *parts), (handler, *names) = selector, subject
    if pattern is not None and not fnmatchcase(handler or "", pattern):
        return False
    return all(part in (None, name) for part, name in zip(parts, names, strict=True))


def wait_of(switch: Switch, now: datetime, chance: float) -> timedelta:
    """How long a paused delivery waits until it asks again, by *chance* (0 to 1).

    Up to half as long as it has been paused already: a short pause ends soon for all, a long one
    costs a backlog one look a minute. Who waits for an end that is near comes right behind it.
    """
    longest = min(max((now - switch.at) / 2, 2 * SHORTEST_WAIT), LONGEST_WAIT)
    wait = longest * (1 + chance) / 2
    if switch.until is None:
        return wait
    left = max(switch.until - now, timedelta(0))
    return min(wait, left + SHORTEST_WAIT * chance)


def check_switch(
    selector: Selector,
    action: SwitchAction,
    by: str,
    reason: str,
    until: datetime | timedelta | None = None,
) -> None:
    """Refuse an invalid switch; raises ConfigurationError."""
    wrong = list(_wrong([*(part for part in selector if part is not None), by], reason))
    if action is SwitchAction.DROP and not reason:
        wrong.append("a drop needs a reason: dropped events are gone")
    if until is not None and not _is_end(until):
        wrong.append("it ends at a time with its zone before the year 3000, or within 100 years")
    if wrong:
        msg = f"this cannot be switched: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


def check_person(by: str, reason: str) -> None:
    """Refuse a name or a reason that cannot be shown; raises ConfigurationError."""
    wrong = list(_wrong([by], reason))
    if wrong:
        msg = f"this cannot be resumed: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


def too_many(most: int) -> ConfigurationError:
    """The error of one switch more than *most*."""
    return ConfigurationError(
        f"there are {most} switches already, and each process keeps them all: end some with"
        " `angzarr flow resume`, or name more with one (a pattern of handlers, a domain)"
    )


def _rank(switch: Switch) -> tuple[bool, datetime, str]:
    return switch.action is not SwitchAction.PAUSE, switch.at, switch.id


def _wrong(names: Sequence[str], reason: str) -> Iterator[str]:
    said = [*names, reason]
    if not all(names):
        yield "names must not be empty"
    if max(map(len, said)) > LONGEST:
        yield f"names and reason have at most {LONGEST} characters"
    if not all(map(_is_text, said)):
        yield "names and reason must be text that UTF-8 can carry"
    if any(category(character) in _NO_TEXT for one in said for character in one):
        yield "names and reason must be one line without control characters: leave them out"


def _is_end(until: datetime | timedelta) -> bool:
    if isinstance(until, timedelta):
        return timedelta(0) < until <= _CENTURY
    return until.tzinfo is not None and 2000 <= until.year < 3000  # noqa: PLR2004 - as it is said


def _is_text(said: str) -> bool:
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True
