"""What a watch remembers of its subject, and when something may be said of it again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.alerts.alert import NOTICES, Kind, Sample, Severity, Watch
from angzarr.analysis.ledger.unknown_values import is_known

#: Samples that are taken within a window: growth is seen over up to a quarter more than it.
SLICES: Final = 4
#: Since when something is open of which nobody was told.
_UNTOLD: Final = datetime.min.replace(tzinfo=UTC)
#: By severity; every other kind is an error.
_WARNINGS: Final = frozenset({Kind.DEAD_LETTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """What counts as worth an alert."""

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
class Finding:
    """Something to be said; `since` and `last_at` bound when it happened, `count` how often."""

    kind: Kind
    since: datetime
    last_at: datetime
    count: int
    resolved: bool = False

    @property
    def severity(self) -> Severity:
        """How urgent it is."""
        return Severity.WARNING if self.kind in _WARNINGS else Severity.ERROR


class Seen(NamedTuple):
    """A watch after a look, one revision on if it changed, and what is to be said."""

    watch: Watch
    findings: tuple[Finding, ...] = ()


def may_say(watch: Watch, kind: Kind, now: datetime, rules: AlertRules) -> bool:
    """Tell whether *kind* was not said of *watch* within `repeat_after`."""
    last = watch.said.get(kind)
    return last is None or now - last >= rules.repeat_after


def said(watch: Watch, found: Finding, now: datetime, *, lasts: bool = True) -> Watch:
    """Return *watch* after *found* was said; it stays open if it *lasts* and is no notice."""
    said = {**watch.said, found.kind: now}
    if found.kind in NOTICES or not lasts:
        return replace(watch, said=said)
    began = found.since if _is_untold(watch, found.kind) else watch.open[found.kind]
    return replace(watch, said=said, open={**watch.open, found.kind: began})


def untold(before: Watch, seen: Seen) -> Watch:
    """Return what *seen* made of *before*, for which a storm speaks.

    Of what it found the end is not told either; of what was told before it is.
    """
    found = {one.kind for one in seen.findings if _is_untold(before, one.kind)}
    marks = {kind: _UNTOLD if kind in found else at for kind, at in seen.watch.open.items()}
    return replace(seen.watch, open=marks)


def _is_untold(watch: Watch, kind: Kind) -> bool:
    """Tell whether nobody was told that *kind* began, of *watch* itself."""
    return watch.open.get(kind, _UNTOLD) == _UNTOLD


def of_storm(watch: Watch) -> bool:
    """Tell whether a storm spoke for *watch* and that is not over."""
    return _UNTOLD in watch.open.values()


def resolutions(watch: Watch, now: datetime, besides: Kind | None = None) -> list[Finding]:
    """Return that the causes of all open alerts of *watch* are gone, *besides* of one kind."""
    return [
        Finding(kind, since, now, 0, resolved=True)
        for kind, since in watch.open.items()
        if kind is not besides and is_known(kind) and since != _UNTOLD
    ]


def sampled(watch: Watch, entries: int, now: datetime, rules: AlertRules) -> Watch:
    """Return *watch* with a sample of *entries*, unless the last one says the same or is young."""
    last = watch.samples[-1] if watch.samples else None
    if last is None or entries < last.entries:  # entries were removed
        floor = min(watch.floor, entries)
        return replace(watch, samples=(Sample(now, entries),), floor=floor)
    if entries == last.entries or now - last.at < rules.window / SLICES:
        return watch
    base = sample_at(watch, now - rules.window)
    kept = [one for one in watch.samples if one is base or one.at > now - rules.window]
    return replace(watch, samples=(*kept, Sample(now, entries)))


def sample_at(watch: Watch, moment: datetime) -> Sample | None:
    """Return the sample that tells the count at *moment*, or the first one after it."""
    before = [one for one in watch.samples if one.at <= moment]
    return before[-1] if before else next(iter(watch.samples), None)


def stored(before: Watch, after: Watch, findings: Sequence[Finding] = ()) -> Seen:
    """Return *after* with its revision, or *before* itself where there is nothing to keep."""
    if after == before and not findings and before.revision:
        return Seen(before)
    return Seen(replace(after, revision=before.revision + 1), tuple(findings))
