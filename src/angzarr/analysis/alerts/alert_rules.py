"""When what is seen of a group, the oldest entries or a replay job is worth an alert. Pure.

Each rule is given a watch and what is there now; it returns the watch as it is afterwards and what
is to be said. A rule that is asked twice about the same has nothing to say the second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from angzarr.analysis.alerts.alert import NOTICES, AlertKind, EntryCount, Watch
from angzarr.analysis.alerts.alert_state import (
    AlertFinding,
    AlertRules,
    WatchUpdate,
    may_say,
    resolutions,
    said,
    sample_at,
    sampled,
    stored,
)
from angzarr.analysis.ledger.entry import Entry, Status, is_known, of_newer
from angzarr.analysis.ledger.group import Group, GroupStatus, is_poison
from angzarr.analysis.replay.job import JobStatus, ReplayJob

#: What is not said again too soon although its cause was gone meanwhile.
_KEPT: Final = NOTICES | {AlertKind.GROUP_REGRESSED}
#: What a job in such a status is an alert of: it goes on only once a person says so.
_JOB_KINDS: Final = {
    JobStatus.HALTED: AlertKind.REPLAY_HALTED,
    JobStatus.PROPOSED: AlertKind.APPROVAL_WANTED,
}
#: The status of a watch whose group has no open entries, and of one that failed again since and of
#: which that is still to be said.
_SETTLED: Final = "settled"
_BACK: Final = "back"
#: In these it is not the group's status that says whether it is news that it is back.
_KNOWN_BACK: Final = frozenset({GroupStatus.REGRESSED.value, _SETTLED, _BACK})
#: Jobs to look at.
WAITING_JOBS: Final = tuple(_JOB_KINDS)


def concerns(group: Group) -> bool:
    """True if *group* is looked at: it has open entries, or some that were archived.

    A rule archives poison and unreadable messages as it files them: without an alert they would
    stay unseen. The authors of rules know what their rules skip.
    """
    return group.open_entries > 0 or group.by_status.get(Status.ARCHIVED, 0) > 0


def wants_attempts(watch: Watch, group: Group, now: datetime, rules: AlertRules) -> bool:
    """True if `see_group` needs the newest entries of *group*: it may speak of them."""
    fresh = _is_unlooked(watch, group.last_failed_at)
    return (
        fresh and not is_muted(group, now) and may_say(watch, AlertKind.MANY_ATTEMPTS, now, rules)
    )


def see_group(
    watch: Watch,
    group: Group,
    now: datetime,
    rules: AlertRules,
    newest: Sequence[Entry] | None = None,
) -> WatchUpdate:
    """Look at a group that passes `concerns`.

    *newest* are its entries that failed last, for letters with many attempts; None: they were not
    read, so it is for a later look to speak of them. Of a group without open entries all is a
    notice: there is nothing that could be gone.
    """
    before, watch = watch, _current(watch, group)
    if is_muted(group, now):
        return stored(before, _quiet(sampled(watch, group.entries, now, rules), group))
    findings = [
        found
        for found in (
            _headline(watch, group, now, rules),
            _letters(watch, group, now, rules),
            _attempts(watch, newest or (), now, rules),
        )
        if found is not None
    ]
    after = sampled(watch, group.entries, now, rules)
    for found in findings:
        after = said(after, found, now, lasts=group.open_entries > 0)
    told = rules.dead_letter_every is None or any(f.kind is AlertKind.DEAD_LETTER for f in findings)
    if told:
        after = replace(after, letters=group.occurrences, told_to=group.last_failed_at)
    if newest is not None:
        looked_to = max([group.last_failed_at, *(one.last_failed_at for one in newest)])
        after = replace(after, looked_to=looked_to)
    if any(found.kind is AlertKind.GROUP_GROWING for found in findings):
        after = replace(after, samples=(EntryCount(now, group.entries),))
    return stored(before, replace(after, status=_status(watch, group, findings)), findings)


def _is_unlooked(watch: Watch, failed_at: datetime) -> bool:
    """True if what failed then was not looked into for many attempts."""
    return watch.looked_to is None or failed_at > watch.looked_to


def _status(watch: Watch, group: Group, findings: Sequence[AlertFinding]) -> str:
    """The status of the group as the watch remembers it."""
    if any(found.kind in {AlertKind.GROUP_REGRESSED, AlertKind.POISON} for found in findings):
        return group.status.value
    if _is_back(watch, group):
        return _BACK
    # Restored entries are not news, and were not alerted: the next failure is news.
    return _SETTLED if watch.status == _SETTLED else group.status.value


def _is_back(watch: Watch, group: Group) -> bool:
    """True if a group that was settled failed again, which was not said yet."""
    came = watch.status == _BACK or (watch.status == _SETTLED and _fresh(watch, group) > 0)
    return came and group.open_entries > 0


def _fresh(watch: Watch, group: Group) -> int:
    """The number of letters not yet alerted, or 1 if retention took the others' place."""
    later = watch.told_to is not None and group.last_failed_at > watch.told_to
    return max(group.occurrences - watch.letters, int(later))


def see_settled(watch: Watch, group: Group | None, now: datetime) -> WatchUpdate:
    """Look at a group that has no open entries any more, or has been removed.

    What it was alerted of is over; should it fail again that is news, though not more often than
    `repeat_after`.
    """
    if watch.open and not any(map(is_known, watch.open)):
        return WatchUpdate(watch)
    if group is not None and concerns(group) and _fresh(watch, group) > 0:
        return WatchUpdate(watch)  # of letters that came and were archived `see_group` tells first
    silent = group is not None and is_muted(group, now)
    findings = [] if silent else resolutions(watch, now)
    after = replace(
        watch,
        open=of_newer(watch.open),
        said={kind: at for kind, at in watch.said.items() if kind in _KEPT} | of_newer(watch.said),
        floor=group.entries if group else 0,
        samples=(EntryCount(now, group.entries),) if group else (),
        letters=group.occurrences if group else 0,
        told_to=group.last_failed_at if group else None,
        looked_to=group.last_failed_at if group else None,
        status=_SETTLED if group else "",
    )
    return stored(watch, after, findings)


def see_storm(watch: Watch, groups: Sequence[Group], now: datetime) -> WatchUpdate:
    """Look at *groups* that share one alert, since they are many."""
    since = min(group.first_failed_at for group in groups)
    last_at = max(group.last_failed_at for group in groups)
    found = AlertFinding(AlertKind.STORM, since, last_at, sum(group.entries for group in groups))
    return stored(watch, said(watch, found, now), [found])


def see_calm(watch: Watch, now: datetime) -> WatchUpdate:
    """Look at storms of which no group is open any more."""
    return _over(watch, AlertKind.STORM, now)


def see_oldest(
    watch: Watch, too_old: Sequence[Entry], now: datetime, rules: AlertRules
) -> WatchUpdate:
    """Look at open entries that failed first longer ago than `oldest_after`, oldest first."""
    kind = AlertKind.OLDEST_TOO_OLD
    if not too_old:
        return _over(watch, kind, now)
    last = watch.said.get(kind)
    if last is not None and now - last < rules.oldest_after:
        return WatchUpdate(watch)
    oldest, newest = too_old[0].first_failed_at, too_old[-1].first_failed_at
    found = AlertFinding(kind, oldest, newest, len(too_old))
    return stored(watch, said(watch, found, now), [found])


def see_job(watch: Watch, job: ReplayJob | None, now: datetime, rules: AlertRules) -> WatchUpdate:
    """Look at a replay job: each time that it halts is said once.

    That it waits for a second person is said at once, and again as often as of old entries.
    """
    kind = _JOB_KINDS.get(job.status) if job else None
    gone = resolutions(watch, now, besides=kind)
    over = {found.kind for found in gone}
    after = replace(
        watch,
        open={one: since for one, since in watch.open.items() if one not in over},
        said={one: at for one, at in watch.said.items() if one not in over},
    )
    if job is None or kind is None:
        return stored(watch, after, gone)
    halt = f"{JobStatus.HALTED} after {job.sent}"  # a job that went on has sent more
    if kind is AlertKind.REPLAY_HALTED:
        after, is_new = replace(after, status=halt), watch.status != halt
    else:
        is_new = kind not in after.said or now - after.said[kind] >= rules.oldest_after
    if not is_new:
        return stored(watch, after, gone)
    found = AlertFinding(kind, job.created_at, now, _concerned(job))
    return stored(watch, said(after, found, now), [*gone, found])


def _concerned(job: ReplayJob) -> int:
    """The number of entries that an alert of *job* speaks of."""
    return job.failed if job.status is JobStatus.HALTED else job.total


def is_muted(group: Group, now: datetime) -> bool:
    """True if nothing is to be said of *group*."""
    return group.muted_until is not None and now < group.muted_until


def _current(watch: Watch, group: Group) -> Watch:
    """*watch* without what is not there any more: entries are removed some day.

    A group that was removed whole and fails again is a new one.
    """
    if _is_another(watch, group):
        fresh = Watch(subject=watch.subject, revision=watch.revision)
        return replace(fresh, said=of_newer(watch.said), open=of_newer(watch.open))
    return replace(watch, letters=min(watch.letters, group.occurrences))


def _is_another(watch: Watch, group: Group) -> bool:
    """True if *group* was removed whole since, and failed again."""
    if watch.told_to is not None:
        return min(group.first_failed_at, group.last_failed_at) > watch.told_to
    last = watch.samples[-1] if watch.samples else None
    return bool(last and group.entries < last.entries and group.first_failed_at > last.at)


def _headline(watch: Watch, group: Group, now: datetime, rules: AlertRules) -> AlertFinding | None:
    """The one thing that says most of what happened to the group as a whole."""
    new = not watch.samples
    if is_poison(group) and _fresh(watch, group) and may_say(watch, AlertKind.POISON, now, rules):
        return _whole(AlertKind.POISON, group)
    if group.status is GroupStatus.REGRESSED and watch.status not in _KNOWN_BACK:
        return _whole(AlertKind.GROUP_REGRESSED, group)
    if _is_back(watch, group) and may_say(watch, AlertKind.GROUP_REGRESSED, now, rules):
        return _whole(AlertKind.GROUP_REGRESSED, group)
    if new:
        return _whole(AlertKind.NEW_GROUP, group) if group.status is GroupStatus.NEW else None
    return _growth(watch, group, now, rules)


def _growth(watch: Watch, group: Group, now: datetime, rules: AlertRules) -> AlertFinding | None:
    base = sample_at(watch, now - rules.window)
    if base is None or not may_say(watch, AlertKind.GROUP_GROWING, now, rules):
        return None
    before = max(base.entries - watch.floor, 0)
    grown = group.entries - watch.floor - before
    if grown < rules.growth_least or before + grown < rules.growth_factor * before:
        return None
    since = max(base.at, now - rules.window)
    return AlertFinding(AlertKind.GROUP_GROWING, since, group.last_failed_at, grown)


def _letters(watch: Watch, group: Group, now: datetime, rules: AlertRules) -> AlertFinding | None:
    fresh, every = _fresh(watch, group), rules.dead_letter_every
    last = watch.said.get(AlertKind.DEAD_LETTER)
    if fresh < 1 or every is None or (last is not None and now - last < every):
        return None
    since = group.first_failed_at if last is None else max(last, group.first_failed_at)
    return AlertFinding(AlertKind.DEAD_LETTER, since, group.last_failed_at, fresh)


def _attempts(
    watch: Watch, newest: Sequence[Entry], now: datetime, rules: AlertRules
) -> AlertFinding | None:
    fresh = (one for one in newest if _is_unlooked(watch, one.last_failed_at))
    many = [one for one in fresh if one.retry_count + 1 > rules.many_attempts]
    if not many or not may_say(watch, AlertKind.MANY_ATTEMPTS, now, rules):
        return None
    times = [one.last_failed_at for one in many]
    return AlertFinding(AlertKind.MANY_ATTEMPTS, min(times), max(times), len(many))


def _whole(kind: AlertKind, group: Group) -> AlertFinding:
    return AlertFinding(kind, group.first_failed_at, group.last_failed_at, group.entries)


def _quiet(watch: Watch, group: Group) -> Watch:
    """*watch* of a muted group: nothing was said, so that what goes on is said after it."""
    return replace(
        watch,
        said=of_newer(watch.said),
        letters=group.occurrences,
        told_to=group.last_failed_at,
        looked_to=group.last_failed_at,
        status=group.status.value,
    )


def _over(watch: Watch, kind: AlertKind, now: datetime) -> WatchUpdate:
    if kind not in watch.open:
        return stored(watch, watch)
    after = replace(watch, open=of_newer(watch.open), said=of_newer(watch.said))
    return stored(watch, after, resolutions(watch, now))
