"""AlertRaiser: looks at groups, old entries and replay jobs, and raises alerts (spec A5).

It reads a bounded number of rows a look, on a thread of its own. What one look misses a later one
finds, so a crash costs only time. A watch goes once its group or job is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from angzarr.analysis.alerts.alert import (
    GROUP,
    JOB,
    LEDGER,
    STORM,
    Alert,
    Alerts,
    Observation,
    Raised,
    Watch,
)
from angzarr.analysis.alerts.alert_rules import (
    WAITING_JOBS,
    concerns,
    is_muted,
    see_calm,
    see_group,
    see_job,
    see_oldest,
    see_settled,
    see_storm,
    wants_attempts,
)
from angzarr.analysis.alerts.alert_state import (
    AlertFinding,
    AlertRules,
    GroupLook,
    GroupSweep,
    Storms,
    WatchUpdate,
    untold,
)
from angzarr.analysis.alerts.alert_text import Speaker
from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.group import Group, Groups
from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.analysis.replay.job import ReplayJob
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.worker.worker import report
from angzarr.clock import Clock
from angzarr.maintenance.retention import Removed
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.analysis")

#: Newest entries of a group that are read for letters with many attempts.
NEWEST: Final = 20
#: Groups of which they are read in one look.
LOOKED_INTO: Final = 20
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
#: Settled groups and jobs looked at, and open entries read, in one look.
SETTLED: Final = 50
OLDEST: Final = 100
#: Jobs on a page, and pages in one look.
JOBS: Final = 100
JOB_PAGES: Final = 10
#: How often is looked for old entries, and alerts are forgotten.
SLOW_EVERY: Final = timedelta(minutes=1)
#: Sightings stored in one transaction.
STORED: Final = 200
#: Alerts forgotten at once.
FORGOTTEN: Final = 500
#: Pause while the ledger is away: doubled up to the longest, with jitter.
LONGEST_WAIT: Final = timedelta(minutes=1)


class Depth(NamedTuple):
    """How many entries are open, by (domain, class of their group), and since when the oldest."""

    open_entries: Mapping[tuple[str, str], int]
    oldest_at: datetime | None


class DepthMeter(Protocol):
    """Counts alerts and shows depths; it must not raise, and not take long."""

    def raised(self, alert: Alert) -> None:
        """Count an alert that this process raised."""

    def show(self, depth: Depth) -> None:
        """Show *depth* until the next one."""


@dataclass(slots=True, kw_only=True)
class AlertRaiser:
    """Fulfils `Turns`; for one thread. *close* lets go of all that it was given."""

    groups: Groups
    ledger: Ledger
    jobs: ReplayJobs
    alerts: Alerts
    rules: AlertRules
    speaker: Speaker
    #: The names of the sinks that an alert goes to.
    route: Callable[[Alert], tuple[str, ...]]
    clock: Clock
    chance: Callable[[], float]
    meters: DepthMeter
    every: timedelta
    #: How long alerts are kept.
    keep: timedelta
    #: New groups above which they share one alert.
    at_once: int
    #: Whether the end of a cause is alerted.
    tell_resolved: bool
    close: Callable[[], None]
    seldom: LogThrottle = field(default_factory=LogThrottle)
    _wait: timedelta = field(default=timedelta(0), init=False)
    #: The first look ever: its findings are alerted at once, and not page by page.
    _first: bool = field(default=True, init=False)
    _sweep: GroupSweep = field(init=False)
    #: Where the next look at jobs begins; empty: with the newest.
    _jobs_after: str = field(default="", init=False)
    #: The last subject looked at of those whose cause may be gone.
    _settled: str = field(default="", init=False)
    _slow_at: datetime | None = field(default=None, init=False)
    #: Whether there were open entries, and when the oldest failed first, as of the last look at it.
    _some: bool = field(default=False, init=False)
    _oldest_at: datetime | None = field(default=None, init=False)
    _storms: Storms = field(init=False)

    def __post_init__(self) -> None:
        self._sweep = GroupSweep(groups=self.groups)
        self._storms = Storms(at_once=self.at_once)

    def turn(self) -> timedelta:
        """Look once; return how long to wait before the next look. Never raises."""
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it
            report("alerts", error, self.seldom)
            self._wait = min(2 * (self._wait or self.every), LONGEST_WAIT)
            return self._wait * (0.5 + self.chance())
        self._wait = timedelta(0)
        return self.every * (0.75 + 0.5 * self.chance())

    def leave(self) -> None:
        """Close what it looked at."""
        self.close()

    def look(self) -> list[Alert]:
        """Look at what there is and raise alerts; return them. Raises LedgerUnavailable."""
        now = self.clock.now()
        self._first = self._first and not self.alerts.watches([LEDGER])
        sightings = [*self._see_groups(now), *self._see_settled(now), *self._see_jobs(now)]
        due = self._slow_at is None or now >= self._slow_at
        some = any(self._sweep.counted.values())
        if due or some != self._some:
            # The first of them, or the last one gone: that is shown without a minute's wait.
            sightings += self._see_oldest(now)
            self._some = some
        if due:
            self.alerts.forget(now - self.keep, limit=FORGOTTEN)
            self._slow_at = now + SLOW_EVERY
        self.meters.show(Depth(self._sweep.counted, self._oldest_at))
        raised = [
            alert
            for at in range(0, len(sightings), STORED)
            for alert in self.alerts.raise_(sightings[at : at + STORED])
        ]
        self._first = False
        self._storms.kept()
        for alert in raised:
            self.meters.raised(alert)
        return raised

    def _see_groups(self, now: datetime) -> list[Observation]:
        """Look at the groups that failed last, and at the next ones of the sweep."""
        found = self._sweep.step(whole=self._first)
        groups = [group for group in found if concerns(group)]
        watches = self._watches([GROUP + group.fingerprint for group in groups])
        newest = self._newest(groups, watches, now)
        sights = []
        for group, watch in zip(groups, watches, strict=True):
            seen = see_group(watch, group, now, self.rules, newest.get(group.fingerprint))
            if seen.watch is not watch:
                sights.append(GroupLook(group, watch, seen))
        told = self._storms.told([one for one in sights if one.may_storm], now)
        rest = [one for one in sights if not one.may_storm]
        sightings = [self._of_group(one.seen, one.group, now) for one in (*rest, *told.alone)]
        return [*sightings, *([self._of_storm(told.together, now)] if told.together else [])]

    def _watches(self, subjects: Sequence[str]) -> list[Watch]:
        known = self.alerts.watches(subjects)
        return [known.get(subject) or Watch(subject=subject) for subject in subjects]

    def _newest(
        self, groups: Sequence[Group], watches: Sequence[Watch], now: datetime
    ) -> Mapping[str, Sequence[Entry]]:
        """The newest entries of some groups by fingerprint; who waited longest comes first.

        Of the others they are wanted in the next look still.
        """
        wanted = [
            (watch.looked_to or _NEVER, group.fingerprint)
            for group, watch in zip(groups, watches, strict=True)
            if wants_attempts(watch, group, now, self.rules)
        ]
        chosen = [name for _, name in sorted(wanted)[:LOOKED_INTO]]
        return {name: self._newest_of(name) for name in chosen}

    def _newest_of(self, fingerprint: str) -> Sequence[Entry]:
        wanted = EntryFilter(fingerprint=fingerprint)
        return self.ledger.get_failed_events(wanted, status=None, limit=NEWEST).entries

    def _of_storm(self, sights: Sequence[GroupLook], now: datetime) -> Observation:
        """The sighting by which one alert speaks for all of *sights*, or none for any."""
        groups = [one.group for one in sights]
        (watch,) = self._watches([STORM])
        seen = see_storm(watch, groups, now)

        def speak(found: AlertFinding) -> Alert:
            return self.speaker.of_storm(found, groups, at=now, revision=seen.watch.revision)

        followers = tuple(untold(one.before, one.seen) for one in sights)
        return self._sighting(seen, speak)._replace(followers=followers)

    def _of_group(self, seen: WatchUpdate, group: Group, now: datetime) -> Observation:
        def speak(found: AlertFinding) -> Alert:
            return self.speaker.of_group(found, group, at=now, revision=seen.watch.revision)

        return self._sighting(seen, speak)

    def _see_settled(self, now: datetime) -> list[Observation]:
        """Look whether the causes of open alerts are gone, a few at a time."""
        watches = self.alerts.open_watches(after=self._settled, limit=SETTLED)
        calm = self._storms.swept(watches, first=not self._settled)
        self._settled = watches[-1].subject if len(watches) == SETTLED else ""
        sightings = []
        for watch in watches:
            kind, _, name = watch.subject.partition(":")
            if f"{kind}:" == GROUP:
                sightings.append(self._see_settled_group(watch, name, now))
            elif f"{kind}:" == JOB:
                sightings.append(self._see_job(watch, name, self.jobs.open_job(name), now))
            elif kind == STORM and calm:
                sightings.append(self._see_calm(watch, now))
        return [one for one in sightings if one is not None]

    def _see_settled_group(
        self, watch: Watch, fingerprint: str, now: datetime
    ) -> Observation | None:
        group = self.groups.open_group(fingerprint)
        if group is not None and group.open_entries:
            return None
        seen = see_settled(watch, group, now)
        known = group or Group(fingerprint=fingerprint, first_failed_at=now, last_failed_at=now)
        return self._of_group(seen, known, now)

    def _see_calm(self, watch: Watch, now: datetime) -> Observation:
        seen = see_calm(watch, now)

        def speak(found: AlertFinding) -> Alert:
            return self.speaker.of_storm(found, (), at=now, revision=seen.watch.revision)

        return self._sighting(seen, speak)

    def _see_jobs(self, now: datetime) -> list[Observation]:
        jobs = list(self._waiting_jobs())
        watches = self._watches([JOB + job.id for job in jobs])
        seen = (
            self._see_job(watch, job.id, job, now) for job, watch in zip(jobs, watches, strict=True)
        )
        return [one for one in seen if one is not None]

    def _waiting_jobs(self) -> Iterator[ReplayJob]:
        """All jobs that a person must decide about; what is beyond the bound comes next."""
        for _ in range(JOB_PAGES):
            page = self.jobs.get_jobs(WAITING_JOBS, limit=JOBS, after=self._jobs_after)
            self._jobs_after = page.next
            yield from page.jobs
            if not page.next:
                return
        if self.seldom.now("jobs"):
            _log.warning(
                "too_many_jobs: more than %s replay jobs are halted or wait for approval: alerts"
                " look at so many at a time, the others come later; cancel those not needed",
                f"{JOB_PAGES * JOBS:,}",
            )

    def _see_job(
        self, watch: Watch, job_id: str, job: ReplayJob | None, now: datetime
    ) -> Observation | None:
        seen = see_job(watch, job, now, self.rules)
        if seen.watch is watch:
            return None

        def speak(found: AlertFinding) -> Alert:
            return self.speaker.of_job(found, job_id, job, at=now, revision=seen.watch.revision)

        return self._sighting(seen, speak)

    def _see_oldest(self, now: datetime) -> list[Observation]:
        entries = self.ledger.oldest_open(limit=OLDEST)
        self._oldest_at = entries[0].first_failed_at if entries else None
        told = self._too_old(entries, now)
        if muted := self._muted({one.fingerprint for one in told}, now):
            # Behind them older ones of others may hide.
            unmuted = self.ledger.oldest_open(limit=OLDEST, unmuted=True)
            told = [one for one in self._too_old(unmuted, now) if one.fingerprint not in muted]
        (watch,) = self._watches([LEDGER])
        seen = see_oldest(watch, told, now, self.rules)
        if seen.watch is watch:
            return []
        more = len(told) == OLDEST

        def speak(found: AlertFinding) -> Alert:
            revision = seen.watch.revision
            return self.speaker.of_oldest(found, told, more=more, at=now, revision=revision)

        return [self._sighting(seen, speak)]

    def _too_old(self, entries: Sequence[Entry], now: datetime) -> list[Entry]:
        return [one for one in entries if now - one.first_failed_at >= self.rules.oldest_after]

    def _muted(self, fingerprints: set[str], now: datetime) -> set[str]:
        groups = (self.groups.open_group(one) for one in fingerprints)
        return {one.fingerprint for one in groups if one is not None and is_muted(one, now)}

    def _sighting(self, seen: WatchUpdate, speak: Callable[[AlertFinding], Alert]) -> Observation:
        wanted = (one for one in seen.findings if self.tell_resolved or not one.resolved)
        return Observation(seen.watch, tuple(self._raised(speak(found)) for found in wanted))

    def _raised(self, alert: Alert) -> Raised:
        return Raised(alert, self.route(alert))


#: Watches looked at in one turn, each with a question of its own.
LOOKED_AT: Final = 100


@dataclass(slots=True, kw_only=True)
class ForgottenWatches:
    """A `retention.Removal`. A watch goes once its subject is gone and nothing of it is open.

    While the subject is there its watch keeps it from being alerted a second time.
    """

    alerts: Alerts
    groups: Groups
    jobs: ReplayJobs
    batch: int = LOOKED_AT
    name: str = field(default="old watches", init=False)
    what: str = field(default="watches of groups and jobs that are gone", init=False)
    #: The last subject looked at.
    _after: str = field(default="", init=False)

    def remove(self, now: datetime) -> Removed:  # noqa: ARG002 - it goes by what is there
        """Look at the next watches and remove those without a subject."""
        watches = self.alerts.closed_watches(after=self._after, limit=self.batch)
        more = len(watches) == self.batch
        self._after = watches[-1].subject if more else ""
        gone = [one for one in watches if self._is_gone(one.subject)]
        return Removed(self.alerts.forget_watches(gone) if gone else 0, more)

    def _is_gone(self, subject: str) -> bool:
        if subject.startswith(GROUP):
            return self.groups.open_group(subject.removeprefix(GROUP)) is None
        if subject.startswith(JOB):
            return self.jobs.open_job(subject.removeprefix(JOB)) is None
        return False
