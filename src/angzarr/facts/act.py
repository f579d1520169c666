"""Acts as facts: what people, API clients and rules do besides handling events (spec F1).

`ActKind` has every act by the subtype of its fact. Where the act comes from is what the process, or
the request, says once: `acting_from`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from angzarr.clock import Clock
from angzarr.facts.fact import Fact, FactLog
from angzarr.facts.resolution import LIFECYCLE, REOPENED

_log = logging.getLogger("angzarr.facts")


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


class ActOrigin(StrEnum):
    """Where an act comes from."""

    CLI = "cli"
    API = "api"
    DASHBOARD = "dashboard"
    AUTOMATIC = "automatic"  # a worker by a rule, or a program of the user's


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


def act_fact(
    kind: ActKind,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ActLog:
    """Appends the facts of acts that are not on the ledger, once they are done.

    No transaction has both, so a process that is killed in between leaves no fact.
    """

    #: Is asked for its log once there is something to say.
    facts: Callable[[], FactLog]
    clock: Clock

    def record(
        self,
        kind: ActKind,
        subject: str,
        *,
        by: str,
        reason: str = "",
        data: Mapping[str, Any],
        **told: Any,
    ) -> None:
        """Append that *by* did *kind* to *subject* now; raises nothing, since it is done."""
        try:
            at = self.clock.now()
            fact = act_fact(
                kind,
                f"{kind}:{subject}:{at.isoformat()}",
                at,
                by=by,
                origin=act_origin(),
                reason=reason,
                data=data,
                **told,
            )
            self.facts().append([fact])
        except Exception:  # noqa: BLE001 - no fact undoes what was done
            _log.exception("fact_not_appended")
