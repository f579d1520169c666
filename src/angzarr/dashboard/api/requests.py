"""Requests: what callers may ask for, checked and made into the terms of the analysis."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Self, TypeVar

from fastapi import Request
from pydantic import AfterValidator, Field, model_validator

from angzarr.analysis.ledger import group
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.group import (
    LONGEST_OWNER,
    Amendment,
    GroupFilter,
    GroupStatus,
    fingerprint_at,
)
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE, Verb
from angzarr.analysis.ledger.replay_options import Expectation
from angzarr.analysis.replay.edit import read_data
from angzarr.analysis.replay.job import DEFAULT_STAGES, ItemState, JobPlan, JobStatus, Selection
from angzarr.configuration.pins import MOST_PINS
from angzarr.configuration.version import LONGEST_ID, LONGEST_VERSION
from angzarr.dashboard.api.shapes import Asked, EntryId, Moment, Text
from angzarr.dashboard.preconditions import Precondition
from angzarr.dashboard.problem import Problem
from angzarr.dead_letters.letter import Refusal
from angzarr.errors import ConfigurationError

#: The most entries that one request changes; a job takes any number.
MOST_AT_ONCE = 1000
_AS_IS = Expectation.AS_IS
_A = TypeVar("_A")
_Note = Annotated[str, Field(max_length=LONGEST_NOTE)]
#: A fingerprint, or how it is spelt in an address.
_Group = Annotated[
    str, Field(max_length=4001, pattern=r"^[^\x00-\x1f]*$"), AfterValidator(fingerprint_at)
]
_After = Annotated[str, Field(max_length=6000, description="Cursor that the page before named.")]


def _checked(asked: _A, made: Callable[[], object]) -> _A:
    """*asked* if the analysis takes what is *made* of it; else ValueError with its words."""
    try:
        made()
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return asked


class Filter(Asked):
    """Which entries; a field left out: any. `since` ≤ last failed < `until`."""

    handler_name: Text | None = None
    domain: Text | None = None
    event_type: Text | None = None
    event_id: Text | None = None
    fingerprint: _Group | None = None
    tenant_id: Text | None = None
    correlation_id: Text | None = None
    root: Text | None = None
    failure_class: FailureClass | None = None
    reason: Text | None = None
    category: Text | None = None
    error_type: Text | None = None
    error_code: Text | None = None
    version: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    id_prefix: Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")] = ""
    status: Status | None = None

    def wanted(self) -> EntryFilter:
        """The filter without the status."""
        return EntryFilter(**{name: getattr(self, name) for name in _FILTER_FIELDS})

    @property
    def is_any(self) -> bool:
        """Whether it names nothing."""
        return self == type(self).model_construct()


_FILTER_FIELDS = tuple(name for name in Filter.model_fields if name != "status")


class EntryQuery(Filter):
    """A page of entries, the one that failed last first."""

    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)
    after: _After = ""


class OneVerb(Asked):
    """A verb for one entry."""

    verb: Verb
    note: _Note = ""


class DryRunSeen(Asked):
    """What the dry run of the same request told, to be sent back as it came."""

    until: Moment
    mark: Annotated[str, Field(pattern=r"^[0-9a-z-]{1,100}$")]


class Conditional(Asked):
    """A request about many entries, which is done to those alone that its dry run told."""

    seen: DryRunSeen | None = None
    dry_run: bool = False

    @property
    def precondition(self) -> Precondition | None:
        """What was seen, if its caller says so."""
        return Precondition(self.seen.until, self.seen.mark) if self.seen else None


class GroupVerb(Conditional):
    """A verb for the entries of a group that it applies to."""

    verb: Verb
    note: _Note = ""
    limit: int = Field(
        default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="So many that failed last."
    )


class ManyVerb(GroupVerb):
    """A verb for entries by id, or for all that a filter finds and the verb applies to."""

    entry_ids: tuple[EntryId, ...] = Field(default=(), max_length=MOST_AT_ONCE)
    filter: Filter | None = None

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        _check_choice(self.entry_ids, self.filter)
        return self


class GroupQuery(Asked):
    """A page of groups, the one that failed last first."""

    handler_name: Text | None = None
    domain: Text | None = None
    error_type: Text | None = None
    owner: Text | None = None
    status: GroupStatus | None = None
    open_only: bool = True
    since: Moment | None = None
    until: Moment | None = None
    prefix: Text = ""
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)
    after: _After = ""

    def wanted(self) -> GroupFilter:
        """The filter of groups."""
        return GroupFilter(**self.model_dump(exclude={"limit", "after"}))


class Amended(Asked):
    """What a person changes about a group; a field left out stays as it is."""

    status: GroupStatus | None = None
    owner: Annotated[Text, Field(max_length=LONGEST_OWNER)] | None = None
    note: Annotated[str, Field(max_length=group.LONGEST_NOTE)] | None = None
    muted_until: Moment | None = None
    unmute: bool = False

    @model_validator(mode="after")
    def _is_a_persons_to_say(self) -> Self:
        return _checked(self, self.amendment)

    def amendment(self) -> Amendment:
        """The change."""
        return Amendment(**self.model_dump())


#: Versions by configuration: names as `angzarr config` takes them.
Versions = Annotated[
    dict[
        Annotated[str, Field(max_length=LONGEST_ID)],
        Annotated[str, Field(min_length=1, max_length=LONGEST_VERSION)],
    ],
    Field(max_length=MOST_PINS),
]


class JobPlanRequest(Asked):
    """How a replay job goes about it: entries replayed by the end of each stage, then the rest."""

    stages: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=DEFAULT_STAGES, max_length=20)
    rate: Annotated[float, Field(gt=0, le=100_000)] | None = 50.0
    in_flight: int = Field(default=100, ge=1, le=100_000)
    halt_share: float = Field(default=0.2, ge=0, lt=1)
    #: Elsewhere than its letters say: a queue that the app knows, a handler that is registered.
    to_queue: Text = ""
    to_handler: Text = ""
    #: `fresh_sequence`: commands are decided on whatever is there now.
    sequence: Expectation = _AS_IS
    #: Versions of configurations that stand in for those that letters are pinned to, by id.
    config: Versions = Field(default_factory=dict)
    #: Leaves out an edit that got no answer, which a replay else sends again.
    original: bool = False

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        return _checked(self, self.plan)

    def plan(self) -> JobPlan:
        """The plan."""
        return JobPlan(**self.model_dump() | {"config": tuple(sorted(self.config.items()))})


class NewJob(Conditional):
    """A replay of entries by id, or of all that a filter finds."""

    entry_ids: tuple[EntryId, ...] = Field(default=(), max_length=MOST_AT_ONCE)
    filter: Filter | None = None
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="So many that failed longest ago."
    )
    plan: JobPlanRequest = JobPlanRequest()
    note: _Note = ""

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        _check_choice(self.entry_ids, self.filter)
        return self

    def selection(self) -> Selection:
        """The entries that it replays."""
        if self.filter is None:
            return Selection(entry_ids=self.entry_ids, limit=self.limit)
        wanted, status = self.filter.wanted(), self.filter.status
        return Selection(wanted=wanted, status=status, limit=self.limit)


class DataQuery(Asked):
    """Which data of an entry: those of its last replay, or those before the last edit."""

    original: bool = False


class NewEdit(Asked):
    """A replay of one entry with other `data`, checked against what its handler declares."""

    data: Any
    original: bool = False
    note: _Note = ""
    #: Elsewhere than its letter says, as in a plan.
    to_queue: Text = ""
    to_handler: Text = ""
    sequence: Expectation = _AS_IS
    config: Versions = Field(default_factory=dict)
    dry_run: bool = False


class JobQuery(Asked):
    """A page of jobs, the newest first."""

    status: JobStatus | None = None
    limit: int = Field(default=50, ge=1, le=LONGEST_PAGE)
    after: _After = ""


class ItemQuery(Asked):
    """A page of the entries of a job, in its order."""

    status: ItemState | None = None
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)
    after: _After = ""

    def states(self) -> tuple[ItemState, ...]:
        """The states that are wanted; none: any."""
        return (self.status,) if self.status else ()


def _check_choice(entry_ids: tuple[str, ...], wanted: Filter | None) -> None:
    """Refuse a request about everything: to mean that, a caller names a status at least."""
    if bool(entry_ids) == bool(wanted and not wanted.is_any):
        msg = "name entries: either entry_ids, or a filter that names something"
        raise ValueError(msg)


async def said_once(request: Request) -> None:
    """Refuse a body that two readers may read differently, or that is nested too deep."""
    body = await request.body()
    try:
        read = read_data(body.decode(json.detect_encoding(body)), around=1)
    except UnicodeDecodeError:
        raise Problem(400, "bad-request", "the body is not UTF-8 text") from None
    if isinstance(read, Refusal):
        raise Problem(422, "invalid", read)
