"""Whether bodies are encrypted where a person would think that they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity

BODIES_PLAIN: Final = Check(
    id="bodies-not-encrypted",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="payloads.encrypt where dlq.encryption_keys is set",
    why="what letters seal lies open on the broker, in delays and in the payload store",
)
IDLE: Final = Check(
    id="encryption-without-effect",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="payloads.encrypt 'stored' and payloads.url",
    why="nothing is encrypted: no body goes to a store",
)
UNFIT: Final = Check(
    id="tasks-not-encryptable",
    area=Area.LETTERS,
    severity=Severity.ERROR,
    looks_at="task_serializer and task_protocol where payloads.encrypt is 'all'",
    why="such a task is refused when it is published, as it could only be sent open",
)
ENCRYPTION_CHECKS: Final = (BODIES_PLAIN, IDLE, UNFIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionSeen:
    """The settings of an app that decide what is encrypted."""

    at: str
    #: Whether letters have keys.
    letters: bool
    #: ``none``, ``stored`` or ``all``.
    bodies: str
    #: Whether large bodies have a store.
    has_store: bool
    serializer: str = "json"
    protocol: int = 2


def encryption_findings(seen: EncryptionSeen) -> Iterator[Finding]:
    """The findings about what is encrypted."""
    if seen.letters and seen.bodies == "none":
        yield BODIES_PLAIN.found(
            seen.at,
            "letters have encryption_keys, bodies of messages have none",
            "set payloads.encryption_keys and payloads.encrypt: all",
        )
    if seen.bodies == "stored" and not seen.has_store:
        yield IDLE.found(
            seen.at,
            "payloads.encrypt is 'stored', and there is no payloads.url",
            "set payloads.encrypt: all, or payloads.url",
        )
    if seen.bodies == "all" and (seen.serializer, seen.protocol) != ("json", 2):
        yield UNFIT.found(
            seen.at,
            f"task_serializer is {seen.serializer}, task_protocol {seen.protocol}",
            "set task_serializer to json and task_protocol to 2",
        )
