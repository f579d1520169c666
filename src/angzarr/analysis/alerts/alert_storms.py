"""Storms: groups that are new, back or poison are told as one where they are many (spec A5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.alerts.alert import STORM, Kind, Watch
from angzarr.analysis.alerts.alert_state import Seen, of_storm
from angzarr.analysis.ledger.group import Group

#: What an outage makes of many groups at once.
_TOLD_TOGETHER: Final = frozenset({Kind.NEW_GROUP, Kind.GROUP_REGRESSED, Kind.POISON})
#: Within this span at most `at_once` groups are told one by one; then a storm, as often.
QUOTA_SPAN: Final = timedelta(minutes=10)
STORM_EVERY: Final = timedelta(minutes=1)


class Sight(NamedTuple):
    """A group, what was remembered of it, and what a look at it showed."""

    group: Group
    before: Watch
    seen: Seen

    @property
    def may_storm(self) -> bool:
        """Whether it is one of those that are told together where they are many."""
        return any(one.kind in _TOLD_TOGETHER for one in self.seen.findings)


class Told(NamedTuple):
    """Groups to be told one by one, and those to be told as one; the largest first."""

    alone: Sequence[Sight]
    together: Sequence[Sight]


class _Pace(NamedTuple):
    """When groups were told one by one, lately; when a storm may be told again."""

    alone: tuple[datetime, ...] = ()
    storm_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class Storms:
    """Remembers how many were told lately, and whether a storm is over; for one thread."""

    at_once: int
    #: What was told before, and with what is being told.
    _before: _Pace = field(default_factory=_Pace, init=False)
    _now: _Pace = field(default_factory=_Pace, init=False)
    #: Whether the sweep of open watches that is under way saw one of a storm.
    _blows: bool = field(default=False, init=False)
    #: The revision of the storm as the sweep before met it.
    _known: int = field(default=0, init=False)

    def told(self, sights: Sequence[Sight], now: datetime) -> Told:
        """Return how *sights* are told; `kept` says that they were.

        What is too much shortly after a storm is left for a later look: it stays as it was.
        """
        largest = sorted(sights, key=lambda one: one.group.entries, reverse=True)
        lately = tuple(at for at in self._before.alone if now - at < QUOTA_SPAN)
        left = max(self.at_once - len(lately), 0)
        alone, together = largest[:left], largest[left:]
        lately += (now,) * len(alone)
        next_at = self._before.storm_at
        if not together or (next_at is not None and now < next_at):
            self._now = _Pace(lately, next_at)
            return Told(alone, ())
        self._now = _Pace(lately, now + STORM_EVERY)
        return Told(alone, together) if len(together) > 1 else Told([*alone, *together], ())

    def kept(self) -> None:
        """Note that what was told last is stored; else it is told in the next look."""
        self._before = self._now

    def swept(self, watches: Sequence[Watch], *, first: bool) -> bool:
        """Note what a page of open watches showed; tell whether the storm among them is over.

        *first*: a sweep of them begins with it; it meets the storm behind all groups. One that
        began while the sweep was under way is not over: its groups may have been passed by.
        """
        self._blows = (self._blows and not first) or any(map(of_storm, watches))
        storm = next((one for one in watches if one.subject == STORM), None)
        if storm is None:
            return False
        known, self._known = self._known, storm.revision
        return not self._blows and known == storm.revision
