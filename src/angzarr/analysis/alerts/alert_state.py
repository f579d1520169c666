"""Alert state: what a watch remembers, when it may speak again, and what becomes a storm.

Groups that are new, back or poison share one alert where they are many (spec A5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.alerts.alert import NOTICES, STORM, AlertKind, EntryCount, Watch
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.ledger.entry import is_known
from angzarr.analysis.ledger.group import Group, GroupFilter, GroupPage, Groups

#: Samples that are taken within a window: growth is seen over up to a quarter more than it.
SLICES: Final = 4
#: The start of something open that was not alerted.
_UNTOLD: Final = datetime.min.replace(tzinfo=UTC)
#: By severity; every other kind is an error.
_WARNINGS: Final = frozenset({AlertKind.DEAD_LETTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """The thresholds and spans of alerts."""

    #: A group grows if within `window` it has at least `growth_factor` times the entries that it
    #: had, and at least `growth_least` more.
    window: timedelta = timedelta(hours=1)
    growth_factor: float = 2.0
    growth_least: int = 10
    #: The same of one group is said again no sooner.
    repeat_after: timedelta = timedelta(hours=1)
    #: The same for letters as such; None: they are no alerts.
    dead_letter_every: timedelta | None = timedelta(minutes=5)
    #: Runs of a handler above which a letter is an alert of its own (spec A5).
    many_attempts: int = 3
    #: How long after its first failure an open entry is too old; it is said again as often.
    oldest_after: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """Something to be said; `since` and `last_at` bound when it happened, `count` how often."""

    kind: AlertKind
    since: datetime
    last_at: datetime
    count: int
    resolved: bool = False

    @property
    def severity(self) -> AlertSeverity:
        """How urgent it is."""
        return AlertSeverity.WARNING if self.kind in _WARNINGS else AlertSeverity.ERROR


class WatchUpdate(NamedTuple):
    """A watch after a look, one revision on if it changed, and what is to be said."""

    watch: Watch
    findings: tuple[AlertFinding, ...] = ()


def may_say(watch: Watch, kind: AlertKind, now: datetime, rules: AlertRules) -> bool:
    """True if *kind* was not said of *watch* within `repeat_after`."""
    last = watch.said.get(kind)
    return last is None or now - last >= rules.repeat_after


def said(watch: Watch, found: AlertFinding, now: datetime, *, lasts: bool = True) -> Watch:
    """*watch* after *found* was said; it stays open if it *lasts* and is not a notice."""
    said = {**watch.said, found.kind: now}
    if found.kind in NOTICES or not lasts:
        return replace(watch, said=said)
    began = found.since if _is_untold(watch, found.kind) else watch.open[found.kind]
    return replace(watch, said=said, open={**watch.open, found.kind: began})


def untold(before: Watch, seen: WatchUpdate) -> Watch:
    """The watch that *seen* made of *before*, for which a storm speaks.

    The end of its findings is not alerted either; the end of earlier alerts is.
    """
    found = {one.kind for one in seen.findings if _is_untold(before, one.kind)}
    marks = {kind: _UNTOLD if kind in found else at for kind, at in seen.watch.open.items()}
    return replace(seen.watch, open=marks)


def _is_untold(watch: Watch, kind: AlertKind) -> bool:
    """True if no alert said that *kind* began, of *watch* itself."""
    return watch.open.get(kind, _UNTOLD) == _UNTOLD


def of_storm(watch: Watch) -> bool:
    """True if a storm spoke for *watch* and that is not over."""
    return _UNTOLD in watch.open.values()


def resolutions(
    watch: Watch, now: datetime, besides: AlertKind | None = None
) -> list[AlertFinding]:
    """The ends of all open alerts of *watch*, *besides* those of one kind."""
    return [
        AlertFinding(kind, since, now, 0, resolved=True)
        for kind, since in watch.open.items()
        if kind is not besides and is_known(kind) and since != _UNTOLD
    ]


def sampled(watch: Watch, entries: int, now: datetime, rules: AlertRules) -> Watch:
    """*watch* with a sample of *entries*, unless the last one says the same or is young."""
    last = watch.samples[-1] if watch.samples else None
    if last is None or entries < last.entries:  # entries were removed
        floor = min(watch.floor, entries)
        return replace(watch, samples=(EntryCount(now, entries),), floor=floor)
    if entries == last.entries or now - last.at < rules.window / SLICES:
        return watch
    base = sample_at(watch, now - rules.window)
    kept = [one for one in watch.samples if one is base or one.at > now - rules.window]
    return replace(watch, samples=(*kept, EntryCount(now, entries)))


def sample_at(watch: Watch, moment: datetime) -> EntryCount | None:
    """The sample that tells the count at *moment*, or the first one after it."""
    before = [one for one in watch.samples if one.at <= moment]
    return before[-1] if before else next(iter(watch.samples), None)


def stored(before: Watch, after: Watch, findings: Sequence[AlertFinding] = ()) -> WatchUpdate:
    """*after* with its revision, or *before* itself where there is nothing to keep."""
    if after == before and not findings and before.revision:
        return WatchUpdate(before)
    return WatchUpdate(replace(after, revision=before.revision + 1), tuple(findings))


#: What an outage makes of many groups at once.
_TOLD_TOGETHER: Final = frozenset(
    {AlertKind.NEW_GROUP, AlertKind.GROUP_REGRESSED, AlertKind.POISON}
)
#: Within this span at most `at_once` groups have their own alert; then a storm, as often.
QUOTA_SPAN: Final = timedelta(minutes=10)
STORM_EVERY: Final = timedelta(minutes=1)


class GroupLook(NamedTuple):
    """A group, what was remembered of it, and what a look at it showed."""

    group: Group
    before: Watch
    seen: WatchUpdate

    @property
    def may_storm(self) -> bool:
        """True if many groups of its kind share one alert."""
        return any(one.kind in _TOLD_TOGETHER for one in self.seen.findings)


class Notice(NamedTuple):
    """Groups with an alert each, and those that share one; the largest first."""

    alone: Sequence[GroupLook]
    together: Sequence[GroupLook]


class _Pace(NamedTuple):
    """The times of recent alerts about single groups, and when a storm may be alerted again."""

    alone: tuple[datetime, ...] = ()
    storm_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class Storms:
    """Remembers recent alerts, and whether a storm is over; for one thread."""

    at_once: int
    #: The pace before this look, and with the alerts of this look.
    _before: _Pace = field(default_factory=_Pace, init=False)
    _now: _Pace = field(default_factory=_Pace, init=False)
    #: Whether the sweep of open watches that is under way saw one of a storm.
    _blows: bool = field(default=False, init=False)
    #: The revision of the storm as the sweep before met it.
    _known: int = field(default=0, init=False)

    def told(self, sights: Sequence[GroupLook], now: datetime) -> Notice:
        """The notice of *sights*; `kept` says that it was given.

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
            return Notice(alone, ())
        self._now = _Pace(lately, now + STORM_EVERY)
        return Notice(alone, together) if len(together) > 1 else Notice([*alone, *together], ())

    def kept(self) -> None:
        """Note that the last alerts are stored; else the next look repeats them."""
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


#: Groups read at once.
PAGE: Final = 200
#: Also those whose entries a rule closed as it filed them: they are unseen.
_ALL: Final = GroupFilter(open_only=False)


@dataclass(slots=True, kw_only=True)
class GroupSweep:
    """Reads at most three pages a step, which costs the same however many groups there are.

    What fails is on the first page at once; what a step misses, as when letters come late, a later
    one sees: of open groups sooner, as their sweep is shorter than that of all.
    """

    groups: Groups
    #: Open entries by (domain, class of their group), as of the last whole sweep.
    counted: Mapping[tuple[str, str], int] = field(default_factory=dict, init=False)
    _after: str = field(default="", init=False)
    #: The same of the sweep of all groups.
    _after_all: str = field(default="", init=False)
    _counting: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def step(self, *, whole: bool = False) -> list[Group]:
        """The groups that failed last, and the next ones; *whole*: all open ones."""
        first = self.groups.get_groups(_ALL, limit=PAGE)
        if not (self._after and first.next):
            self._counting.clear()
            return _once(self._swept(first, whole=whole))
        rest = self.groups.get_groups(_ALL, limit=PAGE, after=self._after_all or first.next)
        self._after_all = rest.next
        return _once([*first.groups, *rest.groups, *self._swept(self._next(), whole=whole)])

    def _swept(self, page: GroupPage, *, whole: bool) -> Iterable[Group]:
        found = list(page.groups)
        self._after = page.next
        while whole and self._after:
            page = self._next()
            found += page.groups
            self._after = page.next
        for group in found:
            self._counting[group.domain, group.failure_class or ""] += group.open_entries
        if not self._after:
            self.counted = dict(self._counting)
        return found

    def _next(self) -> GroupPage:
        return self.groups.get_groups(limit=PAGE, after=self._after)


def _once(groups: Iterable[Group]) -> list[Group]:
    """Each group once, as it was read last."""
    return list({group.fingerprint: group for group in groups}.values())
