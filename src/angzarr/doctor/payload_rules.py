"""Whether bodies in payload stores are registered, and deleted once nothing needs them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity
from angzarr.runtime.text import span_text

UNREGISTERED: Final = Check(
    id="bodies-not-registered",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="store where payloads.url or dlq.payloads.url is set",
    why="nothing knows who needs the bodies that this app stores, so none of them is ever deleted",
)
NO_KEEPER: Final = Check(
    id="bodies-without-keeper",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="ledger where payloads.url or dlq.payloads.url is set",
    why="the analysis worker deletes bodies that nothing needs, and none can run without a ledger",
)
NOT_DELETED: Final = Check(
    id="bodies-not-deleted",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="bodies that have been free for longer than payloads.grace, or condemned for hours",
    why="the payload store grows, as nothing deletes what nothing needs",
)
HELD_LONG: Final = Check(
    id="bodies-held-long",
    area=Area.LETTERS,
    severity=Severity.WARNING,
    looks_at="bodies that have been held for longer than 400 days where payloads.keep is not set",
    why="what a crash or a purged queue left held is never deleted",
)
BODY_CHECKS: Final = (UNREGISTERED, NO_KEEPER, NOT_DELETED, HELD_LONG)

#: For how long a body that may go may be there: analysis workers look every few minutes.
LATE: Final = timedelta(hours=6)
#: For how long a body may be held without a word, where nothing bounds it.
LONG: Final = timedelta(days=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodiesSeen:
    """What decides whether an app's bodies are registered and deleted."""

    at: str
    #: Whether this app says where claims are, beside which bodies are registered.
    has_claims: bool = True
    #: Whether an analysis worker can run.
    has_ledger: bool = True
    #: How many were not deleted in time, up to a page of them; and for how long at most.
    late: int = 0
    late_for: timedelta = timedelta(0)
    #: How many are held for longer than `LONG`, where nothing bounds it, up to a page of them.
    held_long: int = 0
    #: Whether there are more than were counted.
    more: bool = False


def body_findings(seen: BodiesSeen) -> Iterator[Finding]:
    """The findings about bodies that would stay for ever."""
    if not seen.has_claims:
        yield UNREGISTERED.found(
            seen.at,
            "a payload store is set, and no store of claims",
            "set store to that of the workers, e.g. store: redis://localhost:6379/1; what was"
            " stored before goes by `angzarr payload gc --unregistered-older-than 400d`",
        )
    if not seen.has_ledger:
        yield NO_KEEPER.found(
            seen.at,
            "a payload store is set, and no ledger",
            "set ledger and run angzarr analyze, or run `angzarr payload gc` every day",
        )
    more = "at least " if seen.more else ""
    if seen.late:
        yield NOT_DELETED.found(
            seen.at,
            f"{more}{_bodies(seen.late)} should be gone, the first for {span_text(seen.late_for)}",
            "run angzarr analyze with this app's payloads.url and rights to delete there, and look"
            " for pruning_waits in its log; or run `angzarr payload gc`",
        )
    if seen.held_long:
        yield HELD_LONG.found(
            seen.at,
            f"held for longer than {LONG.days} days: {more}{_bodies(seen.held_long)}",
            "look at `angzarr payload list`, and set payloads.keep, or let go of those that nothing"
            " needs: `angzarr payload release`",
        )


def _bodies(count: int) -> str:
    return "1 body" if count == 1 else f"{count:,} bodies"
