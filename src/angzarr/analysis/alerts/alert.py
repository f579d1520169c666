"""Alert: a notice to people about failures, sent once (spec A5). Values, their JSON, and the port.

A *watch* is what was seen of one subject and already said of it. It changes in the transaction that
raises its alerts, so that of several workers one raises them, and a crash loses none. The same
alert makes the same JSON, however often it is sent: for programs, for webhooks, and for Slack.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from angzarr.analysis.alerts.alert_form import AlertSeverity, BodyFormat
from angzarr.webhooks import PostResult


class AlertKind(StrEnum):
    """What an alert is about."""

    NEW_GROUP = "new_group"
    GROUP_GROWING = "group_growing"
    GROUP_REGRESSED = "group_regressed"  # it failed again after it was closed, or said to be fixed
    POISON = "poison"
    OLDEST_TOO_OLD = "oldest_too_old"
    MANY_ATTEMPTS = "many_attempts"
    REPLAY_HALTED = "replay_halted"  # a replay job stopped itself
    APPROVAL_WANTED = "approval_wanted"  # one waits for a second person
    DEAD_LETTER = "dead_letter"
    STORM = "storm"  # many groups are new, back or poison at once
    TEST = "test"  # a person tries whether alerts arrive


#: Said once; there is nothing that could be gone.
NOTICES: Final = frozenset({AlertKind.DEAD_LETTER, AlertKind.MANY_ATTEMPTS, AlertKind.TEST})

#: Subjects of a watch: a group by its fingerprint, a job by its id, all open entries, all storms.
GROUP: Final = "group:"
JOB: Final = "job:"
LEDGER: Final = "ledger"
STORM: Final = "storm"

#: The most alerts on one page.
LONGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert as it was raised. Times are UTC-aware; absent texts are empty."""

    id: str
    kind: AlertKind
    severity: AlertSeverity
    #: What it is about; with `kind` it is the key under which alerts of one cause are one.
    subject: str
    raised_at: datetime
    #: Since when it is so, and when it happened last.
    since: datetime
    last_at: datetime
    #: How many letters or entries it speaks of.
    count: int
    #: One line; then a few sentences: what, since when, how many; then what to do, with a command.
    title: str
    text: str
    todo: str
    link: str = ""
    fingerprint: str = ""
    domain: str = ""
    handler_name: str = ""
    error_type: str = ""
    #: It tells that the cause of an earlier alert of this key is gone.
    resolved: bool = False

    @property
    def key(self) -> str:
        """The same for all alerts of one cause, the one that resolves them included."""
        return f"{self.kind}:{self.subject}"


def alert_id(kind: AlertKind, subject: str, revision: int, at: datetime) -> str:
    """The id of the alert that a watch raises in its change to *revision*.

    *at* tells the lives of a watch apart: one that was forgotten begins again with revision 1,
    while alerts of the life before may still be kept.
    """
    text = f"{kind}\x00{subject}\x00{revision}\x00{at.isoformat()}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class EntryCount(NamedTuple):
    """How many entries a group had at a moment."""

    at: datetime
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The observations and alerts of a subject. A new one has seen nothing."""

    subject: str
    #: Oldest first; a count that did not change makes no sample.
    samples: tuple[EntryCount, ...] = ()
    #: Entries that were there when the group was last resolved: growth counts from there.
    floor: int = 0
    #: Letters of which was told, and when the last of them failed: retention lowers their number.
    letters: int = 0
    told_to: datetime | None = None
    #: When the last entry failed that was looked into for many attempts.
    looked_to: datetime | None = None
    #: When each kind was said last.
    said: Mapping[AlertKind, datetime] = field(default_factory=dict)
    #: Kinds that were raised and whose cause is not known to be gone, with when it began.
    open: Mapping[AlertKind, datetime] = field(default_factory=dict)
    #: Status of the group when it was seen last, or what else tells two causes apart.
    status: str = ""
    #: Counts changes; 0: it was never stored.
    revision: int = 0


class Raised(NamedTuple):
    """An alert, and the names of the sinks that it goes to."""

    alert: Alert
    sinks: tuple[str, ...]


class Observation(NamedTuple):
    """A watch as it is now, at one revision more than it was read, and what it raises.

    *followers* are watches for which a storm speaks: they are stored only with it, each unless it
    changed since it was read.
    """

    watch: Watch
    raised: tuple[Raised, ...] = ()
    followers: tuple[Watch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DueAlert:
    """An alert on its way to one sink, held under a lease by the holder of `token`."""

    alert: Alert
    sink: str
    token: str
    #: Tries before this one.
    attempts: int = 0


class Fate(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


class DeliveryState(NamedTuple):
    """How the delivery of an alert to one sink stands; `problem` is why it did not arrive yet."""

    sink: str
    fate: Fate
    attempts: int
    problem: str


class Listed(NamedTuple):
    """An alert with its deliveries, by name of the sink."""

    alert: Alert
    deliveries: tuple[DeliveryState, ...]


class Alerts(Protocol):
    """Where alerts live until they are delivered; raises LedgerUnavailable.

    Each verb is one transaction.
    """

    @abstractmethod
    def watches(self, subjects: Collection[str], /) -> Mapping[str, Watch]:
        """The watches of those *subjects* that have one."""

    @abstractmethod
    def open_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Watches with open kinds whose subject is greater than *after*, in order."""

    @abstractmethod
    def closed_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Watches without open kinds whose subject is greater than *after*, in order."""

    @abstractmethod
    def forget_watches(self, watches: Sequence[Watch], /) -> int:
        """Delete those of *watches* that did not change since; return how many."""

    @abstractmethod
    def raise_(self, sightings: Sequence[Observation], /) -> list[Alert]:
        """Store each sighting whose watch did not change since; return the alerts that are new.

        The rest was seen by another worker meanwhile and is dropped whole.
        """

    @abstractmethod
    def due(self, sink: str, /, *, limit: int, lease: timedelta) -> list[DueAlert]:
        """Take up to *limit* deliveries to *sink* whose time has come, the oldest alert first.

        Each is this caller's for *lease*; then it is due again.
        """

    @abstractmethod
    def delivered(self, delivery: DueAlert, /) -> bool:
        """Note that *delivery* arrived; False: another worker holds it by now."""

    @abstractmethod
    def failed(self, delivery: DueAlert, problem: str, /, *, again_at: datetime | None) -> bool:
        """Note why *delivery* did not arrive and when to try again; None: never.

        False: another worker holds it by now.
        """

    @abstractmethod
    def release(self, delivery: DueAlert, /) -> bool:
        """Let go of *delivery*, which was not tried: it is due again, and used no attempt."""

    @abstractmethod
    def get_alerts(self, *, limit: int = 50) -> Sequence[Listed]:
        """The alerts that were raised last, newest first; at most `LONGEST_PAGE`."""

    @abstractmethod
    def forget(self, before: datetime, /, *, limit: int) -> int:
        """Delete up to *limit* alerts raised before then, delivered or not; return how many."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


def as_text(alert: Alert) -> str:
    """All of *alert* in words, title first."""
    parts = (f"{alert.title}.", alert.text, alert.todo, alert.link)
    return " ".join(part for part in parts if part)


#: What Slack takes of a plain header, and of a text.
_HEADER: Final = 150
_SECTION: Final = 3000
_MARKS: Final = {
    AlertSeverity.WARNING: "\N{LARGE YELLOW CIRCLE}",
    AlertSeverity.ERROR: "\N{LARGE RED CIRCLE}",
}
_RESOLVED: Final = "\N{LARGE GREEN CIRCLE}"


def body_of(alert: Alert, form: BodyFormat) -> bytes:
    """*alert* as JSON for a receiver of *form*."""
    said = slack_json(alert) if form is BodyFormat.SLACK else generic_json(alert)
    return json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()


def generic_json(alert: Alert) -> dict[str, Any]:
    """*alert* in the form of docs/reference/alerts.md; names do not change."""
    return {
        "type": "dlq.alert.resolved" if alert.resolved else "dlq.alert",
        "timestamp": _json_time(alert.raised_at),
        "data": {
            "id": alert.id,
            "key": alert.key,
            "kind": alert.kind.value,
            "severity": alert.severity.value,
            "resolved": alert.resolved,
            "title": alert.title,
            "text": alert.text,
            "todo": alert.todo,
            "link": alert.link or None,
            "since": _json_time(alert.since),
            "last_at": _json_time(alert.last_at),
            "count": alert.count,
            "group": alert.fingerprint or None,
            "domain": alert.domain or None,
            "handler": alert.handler_name or None,
            "error_type": alert.error_type or None,
        },
    }


def slack_json(alert: Alert) -> dict[str, Any]:
    """*alert* for an incoming webhook of Slack; nothing in it is markup of a letter's."""
    mark = _RESOLVED if alert.resolved else _MARKS[alert.severity]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _slack_text(f"{mark} {alert.title}", _HEADER)},
        {"type": "section", "text": _slack_text(f"{alert.text} {alert.todo}".strip(), _SECTION)},
    ]
    if alert.link:
        link = f"<{_without_markup(alert.link).replace('|', '%7C')}|Open>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link[:_SECTION]}})
    return {"text": _without_markup(f"{mark} {as_text(alert)}")[:_SECTION], "blocks": blocks}


def _slack_text(text: str, longest: int) -> dict[str, Any]:
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return {"type": "plain_text", "text": cut, "emoji": False}


def _without_markup(text: str) -> str:
    """*text* without Slack's markup: links, mentions, ``<!channel>``."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def still_open(alerts: Alerts, found: Sequence[Listed]) -> frozenset[str]:
    """The ids of those of *found*, newest first, whose cause is not known to be gone."""
    watches = alerts.watches({one.alert.subject for one in found})
    ids: set[str] = set()
    over: set[str] = set()
    for alert, _ in found:
        if alert.resolved:
            over.add(alert.key)
        watch = watches.get(alert.subject)
        began = watch.open.get(alert.kind) if watch else None
        if began is not None and alert.key not in over and alert.raised_at >= began:
            ids.add(alert.id)
    return frozenset(ids)


def listed_json(one: Listed, *, is_open: bool) -> dict[str, Any]:
    """An alert and how its deliveries stand as a JSON object."""
    told = generic_json(one.alert)
    deliveries = [
        {"sink": d.sink, "fate": d.fate.value, "attempts": d.attempts, "problem": d.problem or None}
        for d in one.deliveries
    ]
    return {
        **told["data"],
        "raised_at": told["timestamp"],
        "open": is_open,
        "deliveries": deliveries,
    }


def answers_json(answers: Mapping[str, PostResult]) -> dict[str, dict[str, Any]]:
    """The results of a trial as a JSON object, by name of the sink."""
    return {
        name: {
            "arrived": answer.arrived,
            "problem": answer.problem or None,
            "seconds": answer.took.total_seconds(),
        }
        for name, answer in answers.items()
    }
