"""Finding: something that was seen of a set-up, what becomes of messages by it, and the change.

A `Check` is what is looked for. It has one id for ever: scripts leave it out by that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    #: Whether some of its findings can be mended by the doctor.
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
        """Return that it was *seen*; it may be milder than usual."""
        return Finding(
            check=self,
            severity=severity or self.severity,
            at=at,
            seen=seen,
            change=change,
            fix=fix,
        )

    def unknown(self, at: str, seen: str, by_hand: str) -> Finding:
        """Return that nobody can tell, and how a person can: never an alarm."""
        return Finding(
            check=self, severity=Severity.INFO, at=at, seen=seen, change=by_hand, known=False
        )
