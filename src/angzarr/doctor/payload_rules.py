"""What a payload store loses: the bodies of letters that were too large for their queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity
from angzarr.doctor.letter_rules import FLEETING

_LETTERS, _CRITICAL, _ERROR = Area.LETTERS, Severity.CRITICAL, Severity.ERROR

MISSING: Final = Check(
    id="payload-store-missing",
    area=_LETTERS,
    severity=_ERROR,
    looks_at="the bucket or folder of dlq.payloads.url",
    why="a letter whose body is too large for its queue cannot be put: its message is held and"
    " comes round",
)
DELETED: Final = Check(
    id="payloads-deleted",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="lifecycle rules of the bucket of dlq.payloads.url",
    why="S3 deletes the bodies of letters that nobody has handled yet: the messages are gone",
)
FLEETS: Final = Check(
    id="payload-store-not-durable",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="the file system of dlq.payloads.url",
    why="the bodies of letters die with the container, and their messages were let go",
)
CHECKS: Final = (MISSING, DELETED, FLEETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadsSeen:
    """A payload store as it is; whether it takes a payload only a write would tell."""

    at: str
    #: Why nothing can be written there, as far as that is seen; and the cure.
    problem: str = ""
    cure: str = ""
    #: The rule that deletes payloads, and after how long; None: that may not be asked.
    deletes: str | None = ""
    #: The type of a folder's file system; None: unknown, or no folder.
    file_system: str | None = None


def findings(seen: PayloadsSeen) -> Iterator[Finding]:
    """Return what is wrong with a payload store."""
    if seen.problem:
        yield MISSING.found(seen.at, seen.problem, seen.cure)
        return
    if seen.deletes is None:
        yield DELETED.unknown(
            seen.at,
            "its lifecycle rules may not be asked for",
            "see that none expires objects (s3:GetLifecycleConfiguration lets the doctor look)",
        )
    elif seen.deletes:
        yield DELETED.found(
            seen.at,
            seen.deletes,
            "disable the rule for this prefix, or let it end long after the last replay",
        )
    if seen.file_system in FLEETING:
        yield FLEETS.found(
            seen.at,
            f"it is on {seen.file_system}",
            "mount a volume there that all workers and the analysis worker share, or use s3://…",
        )
