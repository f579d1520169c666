"""A finding: what was seen, what it costs, and the change; and the probe that makes findings.

A `Check` keeps its id for ever, because scripts exclude checks by id. A server that does not
answer is one finding and delays no other probe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from angzarr.errors import AngzarrError, ConfigurationError, Unavailable


class Severity(StrEnum):
    """How bad it is, the worst first."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """How far behind the worst it is."""
        return list(Severity).index(self)


class Area(StrEnum):
    """Where it is looked for."""

    APP = "app"
    REDIS = "Redis"
    RABBITMQ = "RabbitMQ"
    SQS = "SQS"
    LETTERS = "dead letters"
    DATABASE = "database"
    FLEET = "fleet"
    ANY = "any server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that loses nothing and reorders nothing, which the doctor can make itself."""

    #: Who makes it: a name that adapters know.
    kind: str
    #: The server, as findings name it.
    at: str
    #: What is done, for people.
    what: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found, or that could not be known (`known` is False)."""

    check: Check
    severity: Severity
    #: The app, or the server and what of it.
    at: str
    #: What was seen there; without secrets.
    seen: str
    #: The exact change: a line of settings, a command, or what to look at by hand.
    change: str
    known: bool = True
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is looked for. `why` says in one sentence what would happen to messages."""

    id: str
    area: Area
    severity: Severity
    #: What is looked at.
    looks_at: str
    why: str
    #: Whether the doctor can fix some of its findings.
    fixable: bool = False

    def found(
        self,
        at: str,
        seen: str,
        change: str,
        *,
        severity: Severity | None = None,
        fix: Fix | None = None,
    ) -> Finding:
        """A finding of this check where *seen*; it may be milder than usual."""
        return Finding(
            check=self,
            severity=severity or self.severity,
            at=at,
            seen=seen,
            change=change,
            fix=fix,
        )

    def unknown(self, at: str, seen: str, by_hand: str) -> Finding:
        """The finding that something is unknown, and how a person checks it: never an alarm."""
        return Finding(
            check=self, severity=Severity.INFO, at=at, seen=seen, change=by_hand, known=False
        )


class Unsafe(NamedTuple):
    """A setting, or a task's option, that loses messages."""

    #: The name in Celery's settings, or of the task's option.
    setting: str
    #: What is wrong, and what to do about it.
    problem: str
    cure: str
    #: Of which task it is, where it is not of all.
    task: str = ""

    def __str__(self) -> str:
        """The sentence for people."""
        return f"{self.problem}: {self.cure}"


#: From where on a clock is worth a word, and from where on leases are no longer what they say:
#: a claim's lease is 8 s.
SKEW, FAR_OFF = timedelta(seconds=1), timedelta(seconds=4)

AWAY: Final = Check(
    id="server-away",
    area=Area.ANY,
    severity=Severity.ERROR,
    looks_at="whether each server lets the app in and answers within a few seconds",
    why="messages wait until it is back; nothing more of it could be checked",
)
NOT_LOOKED_AT: Final = Check(
    id="not-looked-at",
    area=Area.ANY,
    severity=Severity.INFO,
    looks_at="rights and clients that the doctor needs",
    why="what could not be looked at may lose messages all the same",
)
LOOK_FAILED: Final = Check(
    id="look-failed",
    area=Area.ANY,
    severity=Severity.ERROR,
    looks_at="whether each look came to its end",
    why="it may lose messages unseen: the doctor met an unexpected error",
)
CLOCK: Final = Check(
    id="clock-skew",
    area=Area.ANY,
    severity=Severity.WARNING,
    looks_at="TIME of Redis, clock_timestamp() of PostgreSQL, against this machine",
    why="delays, leases and time-outs that one clock wrote and another reads come early or late",
)
REFUSED: Final = Check(
    id="settings-refused",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="what a worker or the analysis worker refuses to start with",
    why="no worker starts: messages wait until the setting is fixed",
)
SERVER_CHECKS: Final = (AWAY, NOT_LOOKED_AT, LOOK_FAILED, CLOCK, REFUSED)


def away(at: str, reason: str) -> Finding:
    """The finding that a server does not answer, or refuses the login."""
    return AWAY.found(at, reason, "start it, or check its address, credentials and network")


def not_looked_at(at: str, reason: str, by_hand: str) -> Finding:
    """The finding that something of a server cannot be seen."""
    return NOT_LOOKED_AT.unknown(at, reason, by_hand)


def look_failed(at: str, kind: str) -> Finding:
    """The finding that a look ended with an unexpected error of a *kind*; never its text."""
    return LOOK_FAILED.found(
        at, f"the look ended with {kind}", "see by hand whether it works, and report this"
    )


def refused(at: str, reason: str) -> Finding:
    """The finding that settings cannot work; *reason* says the cure."""
    return REFUSED.found(at, reason, "change the setting as it says")


def clock(at: str, skew: timedelta | None) -> Iterator[Finding]:
    """The finding that a clock is wrong by *skew*, which may be either one's."""
    if skew is None or abs(skew) < SKEW:
        return
    yield CLOCK.found(
        at,
        f"its clock is {abs(skew).total_seconds():.1f} s"
        f" {'ahead of' if skew > timedelta(0) else 'behind'} this machine's",
        "let both hosts run chrony or another NTP client: chronyc tracking",
        severity=Severity.ERROR if abs(skew) >= FAR_OFF else Severity.WARNING,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A look at something; what it raises becomes a finding."""

    #: The server, as findings name it.
    at: str
    look: Callable[[], Iterable[Finding]]
    #: What its client raises when the server is away.
    failures: tuple[type[BaseException], ...] = ()
    #: Says what such an error means, without secrets.
    reason: Callable[[BaseException], str] = field(default=lambda error: type(error).__name__)

    def findings(self) -> list[Finding]:
        """The findings of the probe; never raises."""
        try:
            return list(self.look())
        except Unavailable as error:
            return [away(self.at, str(error))]
        except AngzarrError as error:
            return [refused(self.at, str(error))]
        except self.failures as error:
            return [away(self.at, self.reason(error))]
        except Exception as error:  # noqa: BLE001 - one odd server must not hide the others
            kind = f"{type(error).__module__}.{type(error).__name__}"
            return [look_failed(self.at, kind)]


def look_at_all(probes: Sequence[Probe], patience: timedelta) -> list[Finding]:
    """The findings of all *probes*, run at once; one that takes longer than *patience* is away.

    Its thread is left behind: it ends with the process.
    """
    found: dict[int, list[Finding]] = {}
    threads = [
        threading.Thread(
            target=lambda number=number, probe=probe: found.update({number: probe.findings()}),
            name=f"angzarr-doctor-{number}",
            daemon=True,
        )
        for number, probe in enumerate(probes)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience.total_seconds()
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    late = f"it did not answer within {patience.total_seconds():g} s"
    return [
        finding
        for number, probe in enumerate(probes)
        for finding in found.get(number, [away(probe.at, late)])
    ]


def refusing(check: Callable[[], object], at: str) -> list[Finding]:
    """The findings of what *check* refuses, as a worker would."""
    try:
        check()
    except ConfigurationError as error:
        return [refused(at, str(error))]
    return []
