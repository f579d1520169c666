"""Ordered handlers over HTTP: how they do, and which of their lanes stand (spec P2, P3)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.dashboard.api.route import DeskHere, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Shape, Text
from angzarr.dashboard.lane_look import by_type, lane_page, lane_story, letters_of
from angzarr.dashboard.paging import next_link, sealed
from angzarr.dashboard.survey import WHOLE, Seen, Survey, uncounted
from angzarr.ordering.lane import Why
from angzarr.ordering.lane_view import LaneState
from angzarr.projections.ordered_handler import (
    checkpoint_json,
    lag_json,
    lane_json,
    row_json,
    standing_json,
)

see = seeing("projections")
_SETUP: Final = {409: "No database is set up for ordered handlers: set ordering.url."}
_NONE: Final = problems({404: "There is no such ordered handler.", **_SETUP})
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
    it: null where nobody can tell. `lag`: null until it was counted.
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
        """Return which aggregate."""
        return Address(self.domain, self.root, self.edition)


@see.get("/projections", response_model=ProjectionsShape, responses=problems(_SETUP))
def list_projections(desk: DeskHere) -> Response:
    """List projections and other ordered handlers, and how far they are behind.

    It is counted beside the requests: `as_of` and each lag's `at` say when.
    """
    survey = desk.surveyor.look(WHOLE)
    if survey.at is None:
        raise survey.problem or uncounted()
    return answer({"projections": [seen_json(one) for one in survey.seen], **_age(survey)})


@see.get("/projections/{name}", response_model=ProjectionDetailShape, responses=_NONE)
def show_projection(desk: DeskHere, name: Name) -> Response:
    """Return one ordered handler, by name or task name."""
    survey = desk.surveyor.look(WHOLE)
    one = survey.find(name)
    types = by_type(desk, one.row.one)
    told = {"by_type": {kind: checkpoint_json(last) for kind, last in sorted(types.items())}}
    return answer(seen_json(one) | told | _age(survey))


@see.get("/projections/{name}/lanes", response_model=LanePageShape, responses={**_NONE, **_CURSOR})
def list_lanes(
    request: Request, desk: DeskHere, name: Name, asked: Annotated[LanesQuery, Query()]
) -> Response:
    """List lanes in which something waits, as they are now."""
    one = desk.surveyor.find(name).row.one
    page = lane_page(desk, one, after=asked.after, limit=asked.limit, blocked=asked.blocked)
    letters = letters_of(desk, (lane.first for lane in page.lanes))
    lanes = [standing_json(one, lane) for lane in page.lanes]
    for told, lane in zip(lanes, page.lanes, strict=True):
        if lane.first is not None:
            told["first"]["entry_id"] = letters.entry_of(lane.first)
    told_page = {"lanes": lanes, "next": sealed(page.next) or None}
    return answer(told_page, headers=next_link(request, page.next))


@see.get("/projections/{name}/lane", response_model=LaneDetailShape, responses=_NONE)
def show_lane(desk: DeskHere, name: Name, asked: Annotated[LaneQuery, Query()]) -> Response:
    """Return the lane of one aggregate: what waits in it, in order, and why."""
    one = desk.surveyor.find(name).row.one
    story = lane_story(desk, one, asked.address(), asked.limit)
    letters = letters_of(desk, story.view.waiting)
    told = lane_json(one, story.view, story.pending)
    for event, waiting in zip(told["waiting"], story.view.waiting, strict=True):
        event["entry_id"] = letters.entry_of(waiting)
    return answer(told | {"more": story.more})


def seen_json(seen: Seen) -> dict[str, Any]:
    """Return an ordered handler as it was counted."""
    lag = seen.row.lag
    return row_json(seen.row) | {
        "registered": seen.is_registered,
        "workers": seen.workers,
        "lag": lag and lag_json(lag),
    }


def _age(survey: Survey) -> dict[str, Any]:
    problem = survey.problem and survey.problem.detail
    return {"as_of": survey.at and survey.at.isoformat(), "problem": problem}
