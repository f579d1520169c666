"""ReplayJob: the replay of many entries that begins with a canary and stops itself (spec A4).

How a job goes on is in `job_progress`, its ports are in `job_store`. A job of one entry may carry
an edit, fixed when the job begins: who approves the job approves these bytes, and no others are
sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.ledger import ANY, EntryFilter
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.ledger.transition import replayable
from angzarr.dead_letters.codec import Form, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import ConfigurationError

#: Why an edit is not sent that is not the one by which its job is known.
ALTERED: Final = "its edit is not the one that was proposed: cancel the job and edit it again"
_AGAIN: Final = "cancel the job and edit it again"
#: Why an edit is not sent whose entry another replay has.
REPLAYED: Final = f"the entry was replayed since it was edited: {_AGAIN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """An edit, and the entry that it was made of as it was then."""

    entry_id: str
    #: Replays that the entry had, and the letter that reported its last failure.
    replays: int
    letter_id: str
    #: Its letters, and what was changed. Where the replay goes is in the job's plan.
    order: ReplayOrder
    #: Whether a second person must approve it.
    needs_approval: bool = False

    @property
    def sha256(self) -> str:
        """The identity of the edit for the job and its history: of both its letters."""
        return digest_of(self.order)


def job_edit(entry: Entry, order: ReplayOrder, *, needs_approval: bool) -> JobEdit:
    """The edit of *entry* by *order* for a job."""
    return JobEdit(
        entry_id=entry.id,
        replays=entry.replays,
        letter_id=entry.letter_id,
        order=order,
        needs_approval=needs_approval,
    )


def digest_of(order: ReplayOrder) -> str:
    """The SHA-256 of the edit in *order*, in hex: of its letters as they are kept."""
    return digest_of_kept(_kept(order.before), _kept(order.letter))


def digest_of_kept(before: bytes | None, letter: bytes | None) -> str:
    """The SHA-256 of an edit whose letters are kept as these bytes; of none it is empty."""
    if letter is None:
        return ""
    digest = hashlib.sha256()
    for body in (before or b"", letter):
        digest.update(len(body).to_bytes(8, "big") + body)
    return digest.hexdigest()


def _kept(letter: DeadLetter | None) -> bytes | None:
    return None if letter is None else encode(letter, Form.BINARY).body


def outdated(edit: JobEdit, entry: Entry | None) -> str:
    """Why *edit* is no longer one of *entry* as it is now, or an empty string."""
    if entry is None:
        return "the entry was removed since it was edited"
    if entry.replays != edit.replays:
        return REPLAYED
    if entry.letter_id != edit.letter_id:
        return f"the entry failed anew since it was edited: {_AGAIN}"
    return "" if replayable(entry) else f"the entry is {entry.status} since it was edited"


#: Entries replayed by the end of each stage; what is left follows in a last stage without bound.
DEFAULT_STAGES: Final = (1, 5, 25)
#: How long an engine may hold a job without saying so again.
JOB_LEASE: Final = timedelta(seconds=15)
#: Stages that a plan may have; each waits for its slowest replay.
_MOST_STAGES: Final = 20


class JobStatus(StrEnum):
    """Where a replay job stands."""

    PROPOSED = "proposed"  # waits for a second person's approval
    RUNNING = "running"
    PAUSED = "paused"  # a person paused it; it goes on when a person says so
    HALTED = "halted"  # it stopped itself: too many of what it replayed failed again
    CANCELLED = "cancelled"
    DONE = "done"


#: A job in none of these keeps its entries to itself, whatever a newer release calls its status.
ENDED: Final = frozenset({JobStatus.CANCELLED, JobStatus.DONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """How a replay job goes about it. Raises ConfigurationError for values that cannot work."""

    #: Entries replayed by the end of each stage, rising; the first stage is the canary.
    stages: tuple[int, ...] = DEFAULT_STAGES
    #: Replays a second at most, over the whole job; None: no limit.
    rate: float | None = 50.0
    #: Replays under way at a time, at most: what may fail before it is noticed.
    in_flight: int = 100
    #: The job halts when more than this share of what was answered lately failed again.
    halt_share: float = 0.2
    #: Where its replays go, if not to where their letters came from; see `ReplayOrder`.
    to_queue: str = ""
    to_handler: str = ""
    sequence: Expectation = Expectation.AS_IS
    config: tuple[tuple[str, str], ...] = ()
    #: Whether an edit that got no answer is left out, which a replay else sends again.
    original: bool = False

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.stages), self.stages, strict=False))
        if not rising or len(self.stages) > _MOST_STAGES:
            msg = f"the stages of a replay job must rise, like 1, 5, 25; {_MOST_STAGES} at most"
            raise ConfigurationError(msg)
        if self.rate is not None and not 0 < self.rate < float("inf"):
            msg = "the rate of a replay job must be more than 0 a second"
            raise ConfigurationError(msg)
        if self.in_flight < 1:
            msg = "a replay job needs 1 or more in flight"
            raise ConfigurationError(msg)
        if not 0 <= self.halt_share < 1:
            msg = "the halt share of a replay job must be 0 or more and less than 1"
            raise ConfigurationError(msg)

    @property
    def order(self) -> ReplayOrder:
        """Where each of its replays goes, and how."""
        return ReplayOrder(
            to_queue=self.to_queue,
            to_handler=self.to_handler,
            sequence=self.sequence,
            config=self.config,
        )


#: The plan of a job over one entry.
ONE_ENTRY: Final = JobPlan(stages=(1,))


def plan_for(order: ReplayOrder, *, original: bool = False) -> JobPlan:
    """The plan of a job that sends one entry as *order* says."""
    return replace(
        ONE_ENTRY,
        to_queue=order.to_queue,
        to_handler=order.to_handler,
        sequence=order.sequence,
        config=order.config,
        original=original,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which entries a job replays; fixed when the job begins, so that its content never shifts.

    Without `status` and ids: open entries. Entries that cannot be replayed now
    (`transition.replayable`) and those of another unfinished job are not chosen.
    """

    wanted: EntryFilter = ANY
    status: Status | None = None
    #: Entries by id; then `wanted` and `status` are not asked.
    entry_ids: tuple[str, ...] = ()
    #: That many at most, those that failed longest ago.
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A job and how far it is. Times are UTC-aware."""

    id: str
    selection: Selection
    plan: JobPlan
    status: JobStatus = JobStatus.RUNNING
    #: Why it is paused or halted, or for what it waits; one sentence.
    said: str = ""
    created_by: str
    created_at: datetime
    #: Why a person wants it.
    note: str = ""
    #: The handlers that are called, whose breakers are watched.
    handlers: tuple[str, ...] = ()
    #: Entries chosen, and of those: sent, handled, failed again, not sent for a reason of their
    #: own, without an answer in time.
    total: int = 0
    sent: int = 0
    handled: int = 0
    failed: int = 0
    refused: int = 0
    unanswered: int = 0
    #: Goes up when a paused or halted job is resumed: each round begins with a canary.
    round: int = 1
    #: The stage under way, from 0; what it has sent, and how many of those were answered.
    stage: int = 0
    stage_sent: int = 0
    stage_answered: int = 0
    #: The last answers of the stage, the newest last: ``h`` handled, ``f`` failed.
    recent: str = ""
    #: Replays that the rate allows at `filled_at`; None: as many as it ever does.
    tokens: float = 0.0
    filled_at: datetime | None = None
    approved_by: str = ""
    #: The SHA-256 of the edited letter that it sends, see `JobEdit`; empty: letters as they are.
    edit: str = ""
    ended_at: datetime | None = None
    revision: int = 1

    @property
    def group(self) -> str:
        """The group whose entries it replays; empty where it was chosen otherwise."""
        return "" if self.selection.entry_ids else (self.selection.wanted.fingerprint or "")

    @property
    def answered(self) -> int:
        """Replays of which it is known how they ended."""
        return self.handled + self.failed + self.unanswered

    @property
    def out(self) -> int:
        """Replays under way."""
        return self.sent - self.answered

    @property
    def left(self) -> int:
        """Entries that were neither sent nor refused."""
        return self.total - self.sent - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Jobs, the newest first; `next` is the cursor of the next page, or empty."""

    jobs: tuple[ReplayJob, ...]
    next: str = ""


class Candidate(NamedTuple):
    """An entry that fits a selection, and the other unfinished job that has it, if one does."""

    entry: Entry
    job: str = ""


class ItemState(StrEnum):
    """Where one entry of a job stands."""

    CHOSEN = "chosen"
    BEGUN = "begun"  # its replay has a number and may have been sent
    SENT = "sent"
    HANDLED = "handled"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    PARKED = "parked"  # it waits in its lane behind an earlier event; counted as unanswered
    REFUSED = "refused"


#: Entries in none of these are the job's own until it has ended.
ENDED_STATES: Final = frozenset(
    {
        ItemState.HANDLED,
        ItemState.FAILED,
        ItemState.UNANSWERED,
        ItemState.PARKED,
        ItemState.REFUSED,
    }
)


class JobItem(NamedTuple):
    """One entry of a job; `replay` is the number that it has, or while it is chosen the next one.

    0: chosen by a release that did not say which.
    """

    position: int
    entry_id: str
    state: ItemState
    replay: int = 0
    #: The round in which it was sent.
    round: int = 0
    #: Why it was refused.
    reason: str = ""


#: Who stands in the history of such a job, and what its id begins with.
AUTOMATIC: Final = "automatic"
AUTOMATIC_PREFIX: Final = "auto-"


def is_automatic(job_id: str) -> bool:
    """True if a job of this id was begun by itself."""
    return job_id.startswith(AUTOMATIC_PREFIX)
