"""Alerts in words for people: what, since when, how many, what to do next, and a link. Pure.

All of it came with a letter, so from anybody: it is cut, and shown as one line that no terminal
acts on. A command is written so that no shell does either.
"""

from __future__ import annotations

import shlex
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import quote

from angzarr.analysis.alerts.alert import GROUP, JOB, LEDGER, STORM, Alert, AlertKind, alert_id
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.alerts.alert_state import AlertFinding
from angzarr.analysis.ledger.entry import Entry, counted
from angzarr.analysis.ledger.failure import UNREADABLE
from angzarr.analysis.ledger.group import Group, GroupStatus, group_address, is_poison
from angzarr.analysis.replay.job import ReplayJob
from angzarr.runtime.text import printable

#: What a template may name.
PLACES: Final = ("group", "kind", "domain", "handler", "alert")


def check_link(template: str) -> None:
    """Raise ValueError, which says the cure, unless *template* can be filled in."""
    if not template.startswith(("https://", "http://")):
        raise ValueError("the link of alerts must begin with https:// or http://")
    if any(part not in PLACES for part in _places(template)):
        known = ", ".join(f"{{{place}}}" for place in PLACES)
        msg = f"the link of alerts may name {known} and nothing else in braces"
        raise ValueError(msg)


def link_of(alert: Alert, template: str) -> str:
    """*template* with what is said of *alert*, quoted; an empty one makes no link."""
    said = {
        "group": group_address(alert.fingerprint) if alert.fingerprint else "",
        "kind": alert.kind.value,
        "domain": alert.domain,
        "handler": alert.handler_name,
        "alert": alert.id,
    }
    return template.format(**{k: quote(it, safe="", errors="replace") for k, it in said.items()})


def _places(template: str) -> list[str]:
    """The names in *template*, with their formats."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return [""]
    return [f"{place}{spec}{how or ''}" for _, place, spec, how in parsed if place is not None]


#: Characters of a name and of a message that are shown.
LONGEST_NAME: Final = 80
LONGEST_MESSAGE: Final = 200

_TITLES: Final = {
    AlertKind.NEW_GROUP: "New group of failures: {what}",
    AlertKind.GROUP_GROWING: "Group of failures grows: {what}",
    AlertKind.GROUP_REGRESSED: "Failed again: {what}",
    AlertKind.POISON: "Kills its worker: {what}",
    AlertKind.MANY_ATTEMPTS: "Dead letter after many attempts: {what}",
    AlertKind.DEAD_LETTER: "Message sent to DLQ: {what}",
}


@dataclass(frozen=True, slots=True)
class Speaker:
    """Puts findings in words. *link* is a template such as ``https://…/groups/{group}``."""

    link: str = ""

    def of_group(self, found: AlertFinding, group: Group, *, at: datetime, revision: int) -> Alert:
        """The alert that *found* is."""
        spoken = self._spoken(
            found,
            GROUP + group.fingerprint,
            at=at,
            revision=revision,
            title=_TITLES[found.kind].format(what=_what(group)),
            says=lambda: (_group_text(found, group), _group_todo(found.kind, group)),
        )
        return self._linked(
            replace(
                spoken,
                fingerprint=group.fingerprint,
                domain=group.domain,
                handler_name=group.handler_name,
                error_type=group.error_type,
            )
        )

    def of_storm(
        self, found: AlertFinding, groups: Sequence[Group], *, at: datetime, revision: int
    ) -> Alert:
        """The one alert for all of *groups*, the largest first; none where it is over."""
        spoken = self._spoken(
            found,
            STORM,
            at=at,
            revision=revision,
            title=f"{len(groups)} groups of failures at once" if groups else "Storm of failures",
            says=lambda: (_storm_text(found, groups), _STORM_TODO),
        )
        return self._linked(spoken)

    def of_oldest(
        self,
        found: AlertFinding,
        too_old: Sequence[Entry],
        *,
        more: bool,
        at: datetime,
        revision: int,
    ) -> Alert:
        """The alert about entries that stay open; *more* than those exist."""
        spoken = self._spoken(
            found,
            LEDGER,
            at=at,
            revision=revision,
            title="Open entries are getting old",
            says=lambda: (
                _oldest_text(found, too_old, more=more),
                f"Decide what becomes of the oldest: angzarr dlq show {too_old[0].id[:12]}",
            ),
        )
        return self._linked(spoken)

    def of_job(self, found: AlertFinding, job_id: str, job: ReplayJob | None, *, at: datetime,
               revision: int) -> Alert:  # fmt: skip
        """The alert about a replay job; one that is resolved may be gone."""
        spoken = self._spoken(
            found,
            JOB + job_id,
            at=at,
            revision=revision,
            title=_JOB_TITLES[found.kind].format(name(job_id)),
            says=lambda: (
                _resolved(found) if job is None else _job_text(found.kind, job),
                _JOB_TODOS[found.kind].format(_argument(job_id)),
            ),
        )
        return self._linked(spoken)

    def _spoken(
        self,
        found: AlertFinding,
        subject: str,
        *,
        at: datetime,
        revision: int,
        title: str,
        says: Callable[[], tuple[str, str]],
    ) -> Alert:
        """*found* in words; *says* what and what to do, unless its cause is gone."""
        text, todo = (_resolved(found), "") if found.resolved else says()
        return Alert(
            id=alert_id(found.kind, subject, revision, at),
            kind=found.kind,
            severity=found.severity,
            subject=subject,
            raised_at=at,
            since=found.since,
            last_at=found.last_at,
            count=found.count,
            title=f"Resolved: {title}" if found.resolved else title,
            text=text,
            todo=todo,
            resolved=found.resolved,
        )

    def _linked(self, alert: Alert) -> Alert:
        return replace(alert, link=link_of(alert, self.link))


def trial_alert(at: datetime, token: str) -> Alert:
    """The alert by which a person tries whether alerts arrive; *token* makes its id."""
    return Alert(
        id=alert_id(AlertKind.TEST, token, 1, at),
        kind=AlertKind.TEST,
        severity=AlertSeverity.WARNING,
        subject="test",
        raised_at=at,
        since=at,
        last_at=at,
        count=0,
        title="Test alert",
        text=f"Somebody tried at {when(at)} whether alerts arrive here. They do.",
        todo="Nothing is to be done.",
    )


def name(value: str) -> str:
    """A name out of a letter as people may see it."""
    return _cut(printable(value), LONGEST_NAME) or "?"


def when(moment: datetime) -> str:
    """*moment* as people read it."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _what(group: Group) -> str:
    return f"{name(group.error_type or group.reason)} in {name(group.handler_name)}"


def _resolved(found: AlertFinding) -> str:
    return f"It began at {when(found.since)}. The cause is gone: nothing of it is open any more."


def _group_text(found: AlertFinding, group: Group) -> str:
    message = _cut(printable(group.error_message), LONGEST_MESSAGE)
    quoted = f' Last message: "{message}"' if message else ""
    told = _counts(found.kind, group).format(
        count=found.count, entries=counted(found.count), all=counted(group.entries)
    )
    return (
        f"{told} Domain {name(group.domain)}, since {when(found.since)},"
        f" last at {when(found.last_at)}; {group.open_entries} open.{quoted}"
    )


def _storm_text(found: AlertFinding, groups: Sequence[Group]) -> str:
    domains = _counted(group.domain for group in groups)
    poison = sum(is_poison(group) for group in groups)
    killing = f", {poison} of them poison" if poison else ""
    largest = groups[0]
    return (
        f"{len(groups)} more groups of failures are new or back{killing}, with"
        f" {counted(found.count)} in all (groups by domain: {domains}). The largest:"
        f" {_what(largest)}, {counted(largest.entries)}, last at {when(largest.last_failed_at)}."
    )


_STORM_TODO: Final = (
    "Look for one cause of all of them, such as a deploy or a dependency that is away: angzarr dlq"
    " stats"
)


def _oldest_text(found: AlertFinding, too_old: Sequence[Entry], *, more: bool) -> str:
    count = f"{found.count} or more entries" if more else counted(found.count)
    of_these = f"the {found.count} oldest by domain: " if more else ""
    return (
        f"{count} failed long ago and are still open"
        f" ({of_these}{_counted(one.domain for one in too_old)}). The oldest failed first at"
        f" {when(found.since)}: {name(too_old[0].error_type or too_old[0].reason)} in"
        f" {name(too_old[0].handler_name)}."
    )


_COUNTS: Final = {
    AlertKind.NEW_GROUP: "{entries} failed in a way that was not seen before.",
    AlertKind.GROUP_GROWING: "{count} more entries; it has {all} now.",
    AlertKind.GROUP_REGRESSED: "{entries} in all, the last of them after all others were closed.",
    AlertKind.POISON: "{entries} whose handler's process died again and again.",
    AlertKind.MANY_ATTEMPTS: "{entries} of the last ones used many attempts in vain.",
    AlertKind.DEAD_LETTER: "{count} new in this group, which has {all}.",
}


def _counts(kind: AlertKind, group: Group) -> str:
    """The template for the number of entries of an alert."""
    if kind is AlertKind.GROUP_REGRESSED and group.status is GroupStatus.REGRESSED:
        return "{entries} in all, the last of them after somebody called it fixed."
    return _COUNTS[kind]


def _group_todo(kind: AlertKind, group: Group) -> str:
    chosen = f"--group {group_address(group.fingerprint)}"
    if kind is AlertKind.POISON:
        return f"Do not replay before it is understood. Look: angzarr dlq list {chosen}"
    if group.reason == UNREADABLE and group.error_type:
        return (
            f"Another system gave it up. Look: angzarr dlq list {chosen}, then angzarr dlq show"
            " ENTRY. A replay needs a task for it under dlq.foreign_routes."
        )
    if group.reason == UNREADABLE:
        return (
            f"It holds nothing that a replay could send. Look at its bytes: angzarr dlq list"
            f" {chosen}, then angzarr dlq show ENTRY --json. Find who puts it there; what is an"
            " event of yours: publish it anew."
        )
    return f"Look: angzarr dlq list {chosen}. Once the cause is gone: angzarr dlq replay {chosen}"


def _argument(value: str) -> str:
    """*value* as one argument of a command, whatever it holds."""
    return shlex.quote(printable(value)[:LONGEST_MESSAGE])


_JOB_TITLES: Final = {
    AlertKind.REPLAY_HALTED: "Replay job {} stopped itself",
    AlertKind.APPROVAL_WANTED: "Replay job {} waits for approval",
}
_JOB_TODOS: Final = {
    AlertKind.REPLAY_HALTED: "See why: angzarr dlq jobs show {0}. Once the cause is gone: angzarr"
    " dlq jobs resume {0}",
    AlertKind.APPROVAL_WANTED: "Look at it: angzarr dlq jobs show {0}. Then, as another person:"
    " angzarr dlq jobs approve {0}, or: angzarr dlq jobs cancel {0}",
}


def _job_text(kind: AlertKind, job: ReplayJob) -> str:
    why = _cut(printable(job.said), LONGEST_MESSAGE)
    because = f" It says: {why}." if why else ""
    began = f"{when(job.created_at)} by {name(job.created_by)}"
    if kind is AlertKind.APPROVAL_WANTED:
        return f"{counted(job.total)} to be replayed, proposed {began}; none is sent.{because}"
    return (
        f"Of {job.sent} entries sent out of {job.total}, {job.failed} failed again and"
        f" {job.handled} were handled; the rest waits. Began {began}.{because}"
    )


def _counted(names: object) -> str:
    """The counts of *names* in words, the most frequent five."""
    counts = Counter(names)  # type: ignore[call-overload]
    told = ", ".join(f"{name(one)}: {count}" for one, count in counts.most_common(5))
    return told + (", …" if len(counts) > 5 else "")  # noqa: PLR2004 - the five above


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
