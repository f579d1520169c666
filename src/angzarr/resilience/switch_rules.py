"""The rules of switches: which one holds for a delivery, and how long a paused one waits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final
from unicodedata import category

from angzarr.errors import ConfigurationError
from angzarr.resilience.switches import Action, Selector, Switch

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
        """Return the switch that holds for *subject*, a delivery's names, *now*.

        Of several a pause wins over a drop: what waits can still be dropped, what was dropped
        is gone. Of several pauses the oldest is told.
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
    """Tell whether *selector* means *subject*, a delivery's names."""
    (pattern, *parts), (handler, *names) = selector, subject
    if pattern is not None and not fnmatchcase(handler or "", pattern):
        return False
    return all(part in (None, name) for part, name in zip(parts, names, strict=True))


def wait_of(switch: Switch, now: datetime, chance: float) -> timedelta:
    """Return how long a paused delivery waits until it asks again, by *chance* (0 to 1).

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
    action: Action,
    by: str,
    reason: str,
    until: datetime | timedelta | None = None,
) -> None:
    """Refuse what is no switch; raises ConfigurationError."""
    wrong = list(_wrong([*(part for part in selector if part is not None), by], reason))
    if action is Action.DROP and not reason:
        wrong.append("a drop needs a reason: dropped events are gone")
    if until is not None and not _is_end(until):
        wrong.append("it ends at a time with its zone before the year 3000, or within 100 years")
    if wrong:
        msg = f"this cannot be switched: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


def check_person(by: str, reason: str) -> None:
    """Refuse who cannot be told of, or why; raises ConfigurationError."""
    wrong = list(_wrong([by], reason))
    if wrong:
        msg = f"this cannot be resumed: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


def too_many(most: int) -> ConfigurationError:
    """Return the error of one switch more than *most*."""
    return ConfigurationError(
        f"there are {most} switches already, and each process keeps them all: end some with"
        " `angzarr flow resume`, or name more with one (a pattern of handlers, a domain)"
    )


def _rank(switch: Switch) -> tuple[bool, datetime, str]:
    return switch.action is not Action.PAUSE, switch.at, switch.id


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
