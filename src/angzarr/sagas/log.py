"""RejectionLog: what became of each rejected command, for people; a port (spec C4, C5).

It decides nothing: the books do. It is written before a delivery is acknowledged. The flags that a
source answered with are kept beside its book, so that a delivery that comes again repeats them.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from angzarr.aggregates.book import Address, Decision
from angzarr.events.headers import time_of
from angzarr.sagas.rejection import Rejection, written_rejection
from angzarr.sagas.rejection_answers import CompensationStep, Flags

#: Characters of a text that is kept.
MAX_TEXT: Final = 2_000
#: Characters of JSON of a rejection that is kept: more than any command should have, and what a
#: database takes well.
MAX_REJECTION: Final = 1_000_000
#: Of a correlation id: it is looked for, and an index of PostgreSQL takes 2,704 bytes.
MAX_FLOW: Final = 200


class RejectionStatus(StrEnum):
    """How far the compensation of a rejected command is."""

    #: The notification is on its way to the source.
    TOLD = "told"
    #: The source appended events.
    COMPENSATED = "compensated"
    #: `SagaCompensationFailed` was emitted: a person must see to it.
    REVOKED = "revoked"
    DECLINED = "declined"
    ABORTED = "aborted"
    FORWARDED = "forwarded"
    #: The source failed, or said nothing.
    FAILED = "failed"


#: Nothing more is to come by itself.
ENDED: Final = frozenset(RejectionStatus) - {RejectionStatus.TOLD}
#: The source did what it could, so that asking it again is of no use.
SETTLED: Final = frozenset({RejectionStatus.COMPENSATED, RejectionStatus.FORWARDED})
#: There is nothing to do about it: a source that failed is fixed and asked again.
CLOSED: Final = ENDED - {RejectionStatus.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rejected command. Times are UTC-aware."""

    #: That of the rejection.
    id: str
    saga: str
    source: Address
    source_sequence: int
    target: Address
    command_id: str
    command_type: str
    reason: str
    correlation_id: str = ""
    rejected_at: datetime
    status: RejectionStatus = RejectionStatus.TOLD
    #: Why it ended so, in words.
    answer: str = ""
    #: Sequences of the events that compensate, in the book of the source.
    first_event: int | None = None
    event_count: int = 0
    #: What was done besides, in order.
    steps: tuple[CompensationStep, ...] = ()
    #: How often the source was asked anew by a person; who did last, and why.
    asked_again: int = 0
    asked_by: str = ""
    note: str = ""
    changed_at: datetime
    #: The rejection (`written_rejection`), which asking again needs. None: it was too large; and
    #: in lists.
    rejection: Any = None


class AskedAgain(NamedTuple):
    """That a person has a source asked anew."""

    by: str
    at: datetime
    note: str = ""


class CaseFilter(NamedTuple):
    """Which cases; None: any."""

    saga: str | None = None
    domain: str | None = None
    status: RejectionStatus | None = None
    correlation_id: str | None = None


class RejectionLog(Protocol):
    """Where cases are kept. All verbs raise StoreUnavailable. Safe to use from threads."""

    @abstractmethod
    def note(self, case: Case, /) -> Case:
        """Keep *case* and return what is kept.

        One that ended does not go back to `told`, a settled one does not change its status.
        """

    @abstractmethod
    def ask_again(self, id: str, asked: AskedAgain, /) -> Case | None:
        """Count that the source is asked again, and return the case as it is now, told.

        A settled case is returned as it is. None: the case does not exist.
        """

    @abstractmethod
    def look(self, id: str, /) -> Sequence[Case]:
        """The cases whose id begins so, two at most, the one that is just so first."""

    @abstractmethod
    def cases(
        self, wanted: CaseFilter, /, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[Case]:
        """Cases without rejections, the newest first.

        *before*, when the last case of a page was rejected and its id, gives the next page.
        """

    @abstractmethod
    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove up to *limit* closed cases that did not change since *before*; return how many.

        Those that another caller removes are passed over.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


def case_of(rejection: Rejection, now: datetime) -> Case:
    """The case of *rejection* as its source receives it."""
    command = rejection.command
    return Case(
        id=rejection.id,
        saga=rejection.origin.saga,
        source=rejection.origin.source,
        source_sequence=rejection.origin.sequence,
        target=command.address,
        command_id=command.id,
        command_type=command.event.type,
        reason=rejection.reason[:MAX_TEXT],
        correlation_id=(rejection.correlation_id or "")[:MAX_FLOW],
        rejected_at=rejection.rejected_at,
        changed_at=now,
        rejection=_bounded(written_rejection(rejection)),
    )


def _bounded(written: Any) -> Any:
    return written if len(json.dumps(written)) <= MAX_REJECTION else None


def noted(kept: Case | None, case: Case) -> Case:
    """The case to keep where *kept* is there and *case* is noted. Pure.

    What was settled stays so, though a delivery that was overtaken ends later.
    """
    if kept is None:
        return case
    overtaken = kept.status in SETTLED and case.status is not kept.status
    if overtaken or case.status is RejectionStatus.TOLD:
        return kept
    return replace(
        case,
        rejected_at=kept.rejected_at,
        asked_again=kept.asked_again,
        asked_by=kept.asked_by,
        note=kept.note,
        rejection=kept.rejection or case.rejection,
    )


def asked_again(kept: Case, asked: AskedAgain) -> Case:
    """*kept* after a person has its source asked anew; a settled one as it is. Pure."""
    if kept.status in SETTLED:
        return kept
    return replace(
        kept,
        status=RejectionStatus.TOLD,
        answer="",
        steps=(),
        asked_again=kept.asked_again + 1,
        asked_by=asked.by,
        note=asked.note[:MAX_TEXT],
        changed_at=asked.at,
    )


def fits(case: Case, wanted: CaseFilter) -> bool:
    """True if *case* is one of those that are *wanted*. Pure."""
    pairs = (
        (wanted.saga, case.saga),
        (wanted.domain, case.source.domain),
        (wanted.status, case.status),
        (wanted.correlation_id, case.correlation_id),
    )
    return all(asked is None or asked == said for asked, said in pairs)


class KeptFlags(NamedTuple):
    """The flags carried out instead of a compensation, and their status."""

    flags: Flags
    status: RejectionStatus


def written_flags(cause: str, kept: KeptFlags) -> Decision:
    """The decision that keeps *kept* as the answer to *cause*; it appends nothing."""
    return Decision(cause=cause, notes={"flags": asdict(kept.flags), "status": kept.status.value})


def read_flags(decision: Decision) -> KeptFlags:
    """Read what `written_flags` wrote."""
    return KeptFlags(Flags(**decision.notes["flags"]), RejectionStatus(decision.notes["status"]))


class Page(NamedTuple):
    """Cases, and the cursor of the next page, if there is one."""

    cases: Sequence[Case]
    next: str = ""


def page_of(log: RejectionLog, wanted: CaseFilter, *, limit: int, after: str) -> Page:
    """A page of cases behind the cursor *after*.

    Raises ValueError for a cursor that is none, and StoreUnavailable.
    """
    found = log.cases(wanted, limit=limit + 1, before=_place(after) if after else None)
    cases = found[:limit]
    more = f"{cases[-1].rejected_at.isoformat()},{cases[-1].id}" if len(found) > limit else ""
    return Page(cases, more)


def _place(cursor: str) -> tuple[datetime, str]:
    at, _, id_ = cursor.partition(",")
    place = time_of(at)
    if place is None or datetime.fromisoformat(at).tzinfo is None or not id_:
        msg = f"{cursor!r} is not a cursor of a page"
        raise ValueError(msg)
    return place, id_
