"""Shapes: what the API takes and answers, as its OpenAPI description says it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.group import GroupStatus, fingerprint_at
from angzarr.analysis.replay.job import ItemState, JobStatus

LONGEST_TEXT: Final = 500


def _as_text(given: object) -> object:
    """Refuse a number, which might count seconds or milliseconds."""
    if not isinstance(given, str) or ":" not in given:
        msg = "is no time like 2026-01-31T12:00:00Z"
        raise ValueError(msg)
    return given


def _in_utc(given: datetime) -> datetime:
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of the calendar") from None


#: A time with its zone.
Moment = Annotated[AwareDatetime, BeforeValidator(_as_text), AfterValidator(_in_utc)]
#: A text that is compared.
Text = Annotated[str, Field(max_length=LONGEST_TEXT, pattern=r"^[^\x00-\x1f]*$")]
#: The SHA-256 by which an entry goes.
EntryId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])]
#: A group in an address: its fingerprint, or how another one is spelt, see `group_address`.
Fingerprint = Annotated[
    str,
    Field(
        pattern=r"^([0-9A-Za-z_.:-]{1,64}|~[0-9A-Za-z_-]{0,4000})$", examples=["9f86d081884c7d65"]
    ),
    AfterValidator(fingerprint_at),
]


class Shape(BaseModel):
    """Something answered; more fields may come."""

    model_config = ConfigDict(extra="allow")


class Asked(BaseModel):
    """Something asked; a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemShape(Shape):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["urn:angzarr:problem:not-found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no such entry"])
    errors: list[dict[str, Any]] | None = None


class LineShape(Shape):
    """What happened, who did it, and when."""

    at: datetime
    who: str
    what: str
    detail: str = ""
    #: Of the history of an entry: `cli`, `api`, `dashboard`, `automatic`; null: unknown.
    origin: str | None = None


class EntryShape(Shape):
    """An entry without its letter."""

    id: str
    handler_name: str
    projection_name: str
    event_id: str
    event_type: str
    domain: str
    tenant_id: str
    correlation_id: str
    root: str
    trace_id: str
    reason: str
    category: str
    error_type: str
    error_code: str
    error_message: str
    fingerprint: str
    retry_count: int
    occurrences: int
    replays: int
    first_failed_at: datetime
    last_failed_at: datetime
    status: Status
    failure_class: FailureClass | None
    evidence: str
    next_replay_at: datetime | None
    resolved_by: str
    resolved_at: datetime | None
    revision: int
    #: Later events of its aggregate that wait behind it; null: none, or not known.
    events_behind: int | None


class EntryPageShape(Shape):
    """A page of entries; `next` is the cursor of the next one, or null."""

    entries: list[EntryShape]
    next: str | None


class MismatchShape(Shape):
    """Where a command that was refused as stale believed its aggregate to be."""

    expected: int
    actual: int
    strategy: str


class EntryDetailShape(EntryShape):
    """An entry with its letter and its history."""

    event_data: Any
    mismatch: MismatchShape | None
    error_stacktrace: str
    context: dict[str, Any]
    message: dict[str, Any]
    history: list[LineShape]
    protection: dict[str, str]


class ExplanationShape(Shape):
    """How an entry would be classified now, and why."""

    id: str
    status: Status
    failure_class: FailureClass | None
    now: dict[str, Any]
    rules: list[dict[str, Any]]
    evidence: list[dict[str, Any]]


class ResultShape(Shape):
    """What became of one entry; `problem` is null where it was done, or `begun`.

    `begun`: the broker is away, and an analysis worker sends it later.
    """

    id: str
    problem: str | None
    begun: bool


class SeenShape(Shape):
    """What a dry run found, for the request itself to send back as it is."""

    until: datetime
    mark: str


class ResultsShape(Shape):
    """What became of many entries; `seen` after a dry run alone."""

    dry_run: bool
    done: int
    begun: int
    refused: int
    results: list[ResultShape]
    seen: SeenShape | None


class StatsShape(Shape):
    """How many entries there are, of which kind."""

    total: int
    by_status: dict[str, int]
    by_class: dict[str, int]
    by_domain: dict[str, int]
    by_handler: dict[str, int]
    occurrences: int
    replays: int
    oldest_open_at: datetime | None
    #: Letters in the queues that no analysis worker has read, by domain, as far as queues tell.
    unread: dict[str, int]


class GroupShape(Shape):
    """All entries of one fingerprint, counted."""

    fingerprint: str
    #: By which it is asked for: its fingerprint, or how that is spelt in an address.
    address: str
    handler_name: str
    domain: str
    event_type: str
    reason: str
    error_type: str
    error_message: str
    failure_class: FailureClass | None
    latest_entry_id: str
    first_failed_at: datetime
    last_failed_at: datetime
    entries: int
    open_entries: int
    occurrences: int
    by_status: dict[str, int]
    status: GroupStatus
    owner: str
    note: str
    muted_until: datetime | None
    revision: int


class GroupPageShape(Shape):
    """A page of groups; `next` is the cursor of the next one, or null."""

    groups: list[GroupShape]
    next: str | None


class GroupDetailShape(GroupShape):
    """A group and what people did with it."""

    history: list[LineShape]


class ChangeShape(Shape):
    """One change of an edit, at a JSON pointer; values as JSON, empty where there is none."""

    pointer: str
    before: str
    after: str


class DataShape(Shape):
    """The data that an edit begins with."""

    data: Any


class SidesShape(Shape):
    """All data before an edit and after, as they may be shown."""

    before: Any
    after: Any


class DraftShape(Shape):
    """What an edit would change; `problem` is why it would not be sent, or null.

    `whole` is given where `changes` were cut or left out, else null.
    """

    changes: list[ChangeShape]
    whole: SidesShape | None
    problem: str | None
    needs_approval: bool


class EditReviewShape(Shape):
    """What a job's edit changes; `problem` is why it is not sent or cannot be shown, or null.

    `whole` is given where `changes` were cut or left out, else null. `mark` stands for all of it:
    it is part of the ETag that its approval needs, and null where it cannot be approved.
    """

    entry_id: str
    changes: list[ChangeShape]
    whole: SidesShape | None
    mark: str | None
    problem: str | None


class JobShape(Shape):
    """A replay job and how far it is."""

    id: str
    status: JobStatus
    said: str
    selection: dict[str, Any]
    plan: dict[str, Any]
    created_by: str
    created_at: datetime
    note: str
    total: int
    sent: int
    handled: int
    failed: int
    refused: int
    unanswered: int
    in_flight: int
    left: int
    round: int
    stage: int
    approved_by: str
    edit: str
    ended_at: datetime | None
    revision: int


class JobPageShape(Shape):
    """A page of jobs; `next` is the cursor of the next one, or null."""

    jobs: list[JobShape]
    next: str | None


class JobDetailShape(JobShape):
    """A job, what happened to it, and which entries it did not send."""

    history: list[LineShape]
    edit_review: EditReviewShape | None
    refused_entries: list[dict[str, str]]


class ItemShape(Shape):
    """One entry of a job; `replay` and `round` are null until its replay has begun."""

    position: int
    id: str
    state: ItemState
    replay: int | None
    round: int | None
    #: Why it was refused, or null.
    reason: str | None


class ItemPageShape(Shape):
    """A page of the entries of a job; `next` is the cursor of the next one, or null."""

    items: list[ItemShape]
    next: str | None


class DryRunShape(Shape):
    """What a job would send, of the first entries looked at: the oldest failures."""

    looked_at: int
    would_send: int
    refused: dict[str, int]
    sample: list[str]
    more: bool
    #: The same where the job would have the same of those entries.
    mark: str
    seen: SeenShape


class MeShape(Shape):
    """Who asks, as the audit names him."""

    name: str
    role: str
