"""Acts as facts: what people, API clients and rules do besides handling events (spec F1).

`ActKind` has every act by the subtype of its fact. Where the act comes from is what the process, or
the request, says once: `acting_from`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from angzarr.facts.fact import Fact
from angzarr.facts.resolution import ACT_BEGUN, LIFECYCLE, REOPENED


class ActKind(StrEnum):
    """What was done; the subtype of a fact of type `lifecycle`. Names never change."""

    ENTRY_REPLAYED = "entry_replayed"
    ENTRY_SKIPPED = "entry_skipped"
    ENTRY_ARCHIVED = "entry_archived"
    ENTRY_RESTORED = REOPENED
    ENTRY_ESCALATED = "entry_escalated"
    ENTRY_COMPENSATED = "entry_compensated"
    ENTRY_RESOLVED = "entry_resolved"
    REPLAY_JOB_PROPOSED = "replay_job_proposed"
    REPLAY_JOB_APPROVED = "replay_job_approved"
    REPLAY_JOB_STARTED = "replay_job_started"
    REPLAY_JOB_STAGE_PASSED = "replay_job_stage_passed"
    REPLAY_JOB_PAUSED = "replay_job_paused"
    REPLAY_JOB_RESUMED = "replay_job_resumed"
    REPLAY_JOB_HALTED = "replay_job_halted"
    REPLAY_JOB_CANCELLED = "replay_job_cancelled"
    REPLAY_JOB_DONE = "replay_job_done"
    GROUP_CHANGED = "group_changed"
    GROUP_REGRESSED = "group_regressed"
    BRAKE_PULLED = "brake_pulled"
    BRAKE_RELEASED = "brake_released"
    ALERT_TESTED = "alert_tested"
    BREAKER_CHANGED = "circuit_breaker_state_changed"
    FLOW_SWITCHED = "flow_switched"
    COMPENSATION_ASKED_AGAIN = "compensation_asked_again"
    CONFIGURATION_PUT = "configuration_put"
    CONFIGURATION_PINNED = "configuration_pinned"
    PROJECTION_SKIPPED = "projection_skipped"
    PROJECTION_BEGUN = "projection_begun"
    PROJECTION_RESET = "projection_reset"
    PROJECTION_REBUILD_STARTED = "projection_rebuild_started"
    PROJECTION_REBUILT = "projection_rebuilt"
    PROJECTION_REBUILD_STOPPED = "projection_rebuild_stopped"
    PROJECTION_REBUILD_ABANDONED = "projection_rebuild_abandoned"
    LETTERS_MOVED = "letters_moved"
    LETTERS_DRAINED = "letters_drained"
    LETTERS_IMPORTED = "letters_imported"
    LETTERS_FORWARDED = "letters_forwarded"
    LEDGER_RECOUNTED = "ledger_recounted"
    BOOKS_PRUNED = "books_pruned"
    FACTS_PRUNED = "facts_pruned"
    PAYLOADS_DELETED = "payloads_deleted"
    PAYLOAD_RELEASED = "payload_released"
    TABLES_UPGRADED = "tables_upgraded"
    SETUP_FIXED = "setup_fixed"


class ActStage(StrEnum):
    """How an act stands that has no transaction with the facts; the subtype of a `lifecycle` fact.

    One that did what it was to do ends with the fact of its `ActKind` instead.
    """

    BEGUN = ACT_BEGUN
    FAILED = "act_failed"
    CHANGED_NOTHING = "act_changed_nothing"


class ActOrigin(StrEnum):
    """Where an act comes from."""

    CLI = "cli"
    API = "api"
    DASHBOARD = "dashboard"
    AUTOMATIC = "automatic"  # a worker by a rule, or a program of the user's


#: What people read of them; facts and histories have the value.
_WORDS: Final = {
    ActOrigin.CLI: "from the command line",
    ActOrigin.API: "over the API",
    ActOrigin.DASHBOARD: "on the dashboard",
    ActOrigin.AUTOMATIC: "automatically",
}


def origin_text(origin: str | None) -> str:
    """*origin* in words; empty where it is unknown."""
    return next((text for known, text in _WORDS.items() if known == origin), "")


#: Acts after which nothing is left to do about the dead letter: they resolve its error fact. What
#: is archived is kept to be replayed, and a replay resolves by its success.
RESOLVING: Final = frozenset(
    {ActKind.ENTRY_SKIPPED, ActKind.ENTRY_RESOLVED, ActKind.ENTRY_COMPENSATED}
)
#: Acts that name the error fact of the dead letter; a restored entry opens it again.
NAMING: Final = RESOLVING | {ActKind.ENTRY_RESTORED}

_ORIGIN: ContextVar[ActOrigin] = ContextVar("angzarr_act_origin", default=ActOrigin.AUTOMATIC)


@contextmanager
def acting_from(origin: ActOrigin) -> Iterator[None]:
    """Have the facts of all acts within the block say *origin*; also in threads it waits for."""
    before = _ORIGIN.set(origin)
    try:
        yield
    finally:
        _ORIGIN.reset(before)


def act_origin() -> ActOrigin:
    """Where acts of this moment come from."""
    return _ORIGIN.get()


@dataclass(slots=True)
class BegunAct:
    """An act of *kind* that is under way. *id* is that of the fact that says so."""

    id: str
    kind: ActKind
    has_end: bool = False


_BEGUN: ContextVar[BegunAct | None] = ContextVar("angzarr_begun_act", default=None)


@contextmanager
def within_act(begun: BegunAct) -> Iterator[None]:
    """Let the facts of what is done in the block end *begun*."""
    before = _BEGUN.set(begun)
    try:
        yield
    finally:
        _BEGUN.reset(before)


def end_of_act(kind: ActKind) -> str | None:
    """The id of the act under way, which a fact of *kind* ends by its `resolves`.

    None: there is none, or one of another kind, in which this happened by the way.
    """
    begun = _BEGUN.get()
    if begun is None or begun.kind is not kind:
        return None
    begun.has_end = True
    return begun.id


def act_fact(
    kind: ActKind | ActStage,
    fact_id: str,
    at: datetime,
    *,
    by: str,
    origin: ActOrigin,
    reason: str = "",
    data: Mapping[str, Any],
    **told: Any,
) -> Fact:
    """The fact that *by* did *kind*; *told* are further fields of it."""
    said = {"by": by, "origin": origin.value, "reason": reason or None}
    return Fact(
        id=fact_id, type=LIFECYCLE, subtype=kind.value, at=at, data=said | dict(data), **told
    )
