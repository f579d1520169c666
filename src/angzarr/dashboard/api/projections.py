"""Ordered handlers over HTTP: how they do, and which of their lanes stand (spec P2, P3).

A lane is read when it is looked at, and never more lanes than a page shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.aggregates.book import Address, Head, Pending, check_address
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.dashboard.api.route import ServicesHere, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Shape, Text
from angzarr.dashboard.ordered_handlers import (
    BOOKS,
    LANES,
    WHOLE,
    HandlerStatus,
    HandlerSurvey,
    uncounted,
)
from angzarr.dashboard.paging import next_link, no_cursor, sealed, text_after
from angzarr.dashboard.problem import Problem, asking
from angzarr.dashboard.services import Services
from angzarr.errors import AngzarrError, InvalidDomainName, InvalidRoot
from angzarr.ordering.lane import Standing, Waiting, Why
from angzarr.ordering.lane_view import LaneState, LaneView, lane_at
from angzarr.projections.checkpoint import Checkpoint
from angzarr.projections.ordered_handler import (
    OrderedHandler,
    checkpoint_json,
    lag_json,
    lane_json,
    row_json,
    standing_json,
)
from angzarr.runtime.json_bounds import Bounds
from angzarr.runtime.strict_json import read_strictly


class LanePage(NamedTuple):
    """Lanes in which something waits, and the cursor of the next page, if there is one."""

    lanes: Sequence[Standing]
    next: str


class LaneStory(NamedTuple):
    """One lane, what waits in it, and what its book has more."""

    view: LaneView
    #: More waits than is told.
    more: bool
    pending: Sequence[Pending]


class Letters(NamedTuple):
    """The entries of letters that lanes wait behind, by letter; None: the ledger is away."""

    entries: Mapping[str, str] | None

    def entry_of(self, waiting: Waiting) -> str | None:
        """The id of the entry that *waiting* is; None: it is not filed, or not known."""
        return (self.entries or {}).get(waiting.letter_id or "")


def lane_page(
    services: Services, one: OrderedHandler, *, after: str, limit: int, blocked: bool
) -> LanePage:
    """A page of lanes of *one* behind the cursor *after*; raises Problem, ConfigurationError."""
    place = _address_in(after) if after else None
    with asking(LANES):
        lanes = services.ordered.stores().lanes
        found = lanes.standing(one.task, after=place, limit=limit + 1, blocked=blocked)
    shown = found[:limit]
    more = json.dumps(shown[-1].lane.address) if len(found) > limit else ""
    return LanePage(shown, more)


def lane_story(services: Services, one: OrderedHandler, address: Address, limit: int) -> LaneStory:
    """The lane of *one* at *address*; raises Problem, ConfigurationError."""
    try:
        check_address(address)
    except (InvalidDomainName, InvalidRoot) as error:
        raise Problem(422, "invalid", str(error)) from error
    with asking(LANES):
        view = lane_at(services.ordered.stores().lanes, one.lane(address), limit + 1)
    more = len(view.waiting) > limit
    shown = LaneView(
        address=address, next_sequence=view.next_sequence, waiting=view.waiting[:limit]
    )
    return LaneStory(shown, more, _pending(services, shown))


def by_type(services: Services, one: OrderedHandler) -> Mapping[str, Checkpoint]:
    """The checkpoints of *one* by type of event; raises Problem, ConfigurationError."""
    with asking(LANES):
        return services.ordered.stores().checkpoints.by_type(one.task)


def entries_of_lanes(services: Services, waiting: Iterable[Waiting | None]) -> Letters:
    """The entries of those *waiting* that are dead letters, in one question."""
    ids = {one.letter_id for one in waiting if one is not None and one.letter_id}
    if not ids:
        return Letters({})
    try:
        found = services.ledger.find_by_letters(ids)
    except AngzarrError:
        return Letters(None)
    return Letters({letter: entry.id for letter, entry in found.items()})


def _pending(services: Services, view: LaneView) -> Sequence[Pending]:
    with asking(BOOKS):
        books = services.ordered.books()
        return () if books is None else books.pending([Head(view.address, view.next_sequence)])


def _address_in(after: str) -> Address:
    try:
        place = read_strictly(text_after(after), _PLACE)
    except ValueError:
        raise no_cursor() from None
    match place:
        case [str(domain), str(root), str(edition)]:
            try:
                return check_address(Address(domain, root, edition))
            except (InvalidDomainName, InvalidRoot):
                raise no_cursor() from None
    raise no_cursor()


see = seeing("projections")
_SETUP: Final = {409: "No database is set up for ordered handlers: set ordering.url."}
_NONE: Final = problems({404: "There is no such ordered handler.", **_SETUP})
#: What a cursor of lanes parses to: the domain, the root and the edition of one.
_PLACE: Final = Bounds(nodes=10, depth=1)
_CURSOR: Final = problems({400: "No cursor."})
Name = Annotated[str, Path(pattern=r"^[^\x00-\x1f/]{1,500}$")]


class CheckpointShape(Shape):
    """What was processed, and last of it what."""

    last_event_id: str
    last_event_type: str
    last_processed_at: datetime
    events_processed: int


class LagTypeShape(Shape):
    """Events of one type that were not passed."""

    events: int
    oldest: datetime | None


class LagShape(Shape):
    """How far an ordered handler was behind the event books `at` that time.

    `without_books`: domains that have no book: of their events only those count that wait in lanes.
    """

    at: datetime
    events_behind: int
    seconds_behind: float | None
    aggregates_behind: int
    by_type: dict[str, LagTypeShape]
    without_books: list[str]


class ProjectionShape(Shape):
    """A projection, or another handler that takes events in order.

    `registered`: by the app that the dashboard was given; of another one `domains` and
    `first_sequence` are what its lanes tell, and `event_types` are not known. `workers` that run
    it: null where that is unknown. `lag`: null until it was counted.
    """

    name: str
    kind: Literal["projection", "handler"]
    task: str
    registered: bool
    workers: int | None
    domains: list[str]
    event_types: list[str]
    first_sequence: int
    checkpoint: CheckpointShape | None
    lanes: int
    parked: int
    blocked: int
    waits_since: datetime | None
    lag: LagShape | None


class ProjectionsShape(Shape):
    """All ordered handlers, as they were `as_of`; `problem` is why there is nothing newer."""

    projections: list[ProjectionShape]
    as_of: datetime
    problem: str | None


class ProjectionDetailShape(ProjectionShape):
    """An ordered handler, and what it processed of each type of event."""

    by_type: dict[str, CheckpointShape]
    as_of: datetime
    problem: str | None


class WaitingShape(Shape):
    """An event that waits; `entry_id` is its entry in the ledger, where it is a filed letter."""

    sequence: int
    why: Why
    event_id: str
    event_type: str
    since: datetime
    due_at: datetime | None
    letter_id: str | None
    entry_id: str | None


class LaneShape(Shape):
    """A lane, how it stands, and the commands that help."""

    domain: str
    root: str
    edition: str
    next_sequence: int
    state: LaneState
    what_helps: list[str]


class StandingLaneShape(LaneShape):
    """A lane in which something waits: how many events, and which first."""

    waiting: int
    first: WaitingShape | None


class LanePageShape(Shape):
    """A page of lanes in which something waits, by address."""

    lanes: list[StandingLaneShape]
    next: str | None


class LaneDetailShape(LaneShape):
    """A lane, what waits in it in order, and what its book has more; `more` waits than is told."""

    waiting: list[WaitingShape]
    more: bool
    in_book: dict[str, LagTypeShape]


class LanesQuery(Asked):
    """Which lanes, of those in which something waits."""

    blocked: bool = Field(default=False, description="Only those that a dead letter holds up.")
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)
    after: Annotated[str, Field(max_length=4000)] = ""


class LaneQuery(Asked):
    """The lane of one aggregate."""

    domain: Text
    root: Text
    edition: Text = ""
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)

    def address(self) -> Address:
        """The aggregate."""
        return Address(self.domain, self.root, self.edition)


@see.get("/projections", response_model=ProjectionsShape, responses=problems(_SETUP))
def list_projections(services: ServicesHere) -> Response:
    """List projections and other ordered handlers, and how far they are behind.

    It is counted beside the requests: `as_of` and each lag's `at` say when.
    """
    survey = services.surveyor.look(WHOLE)
    if survey.at is None:
        raise survey.problem or uncounted()
    return answer({"projections": [seen_json(one) for one in survey.seen], **_age(survey)})


@see.get("/projections/{name}", response_model=ProjectionDetailShape, responses=_NONE)
def show_projection(services: ServicesHere, name: Name) -> Response:
    """Return one ordered handler, by name or task name."""
    survey = services.surveyor.look(WHOLE)
    one = survey.find(name)
    types = by_type(services, one.row.one)
    told = {"by_type": {kind: checkpoint_json(last) for kind, last in sorted(types.items())}}
    return answer(seen_json(one) | told | _age(survey))


@see.get("/projections/{name}/lanes", response_model=LanePageShape, responses={**_NONE, **_CURSOR})
def list_lanes(
    request: Request, services: ServicesHere, name: Name, asked: Annotated[LanesQuery, Query()]
) -> Response:
    """List lanes in which something waits, as they are now."""
    one = services.surveyor.find(name).row.one
    page = lane_page(services, one, after=asked.after, limit=asked.limit, blocked=asked.blocked)
    letters = entries_of_lanes(services, (lane.first for lane in page.lanes))
    lanes = [standing_json(one, lane) for lane in page.lanes]
    for told, lane in zip(lanes, page.lanes, strict=True):
        if lane.first is not None:
            told["first"]["entry_id"] = letters.entry_of(lane.first)
    told_page = {"lanes": lanes, "next": sealed(page.next) or None}
    return answer(told_page, headers=next_link(request, page.next))


@see.get("/projections/{name}/lane", response_model=LaneDetailShape, responses=_NONE)
def show_lane(services: ServicesHere, name: Name, asked: Annotated[LaneQuery, Query()]) -> Response:
    """Return the lane of one aggregate: what waits in it, in order, and why."""
    one = services.surveyor.find(name).row.one
    story = lane_story(services, one, asked.address(), asked.limit)
    letters = entries_of_lanes(services, story.view.waiting)
    told = lane_json(one, story.view, story.pending)
    for event, waiting in zip(told["waiting"], story.view.waiting, strict=True):
        event["entry_id"] = letters.entry_of(waiting)
    return answer(told | {"more": story.more})


def seen_json(seen: HandlerStatus) -> dict[str, Any]:
    """An ordered handler as it was counted."""
    lag = seen.row.lag
    return row_json(seen.row) | {
        "registered": seen.is_registered,
        "workers": seen.workers,
        "lag": lag and lag_json(lag),
    }


def _age(survey: HandlerSurvey) -> dict[str, Any]:
    problem = survey.problem and survey.problem.detail
    return {"as_of": survey.at and survey.at.isoformat(), "problem": problem}
