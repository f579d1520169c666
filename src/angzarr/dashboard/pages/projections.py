"""Pages of ordered handlers: all of them, one with the lanes that stand, and one lane."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.projections import (
    LanePage,
    LaneQuery,
    LanesQuery,
    Letters,
    Name,
    by_type,
    entries_of_lanes,
    lane_page,
    lane_story,
)
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.ordered_handlers import WHOLE
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import LiveStep, caller_of, followed, pages, render, write
from angzarr.dashboard.paging import next_query
from angzarr.dashboard.problem import Problem, problem_of
from angzarr.dashboard.services import Services
from angzarr.errors import AngzarrError
from angzarr.ordering.lane import Standing
from angzarr.ordering.lane_view import LaneState, view_of
from angzarr.projections.ordered_handler import OrderedHandler, what_helps
from angzarr.settings.dashboard import Role

router = pages()
_ON_A_PAGE: Final = 50
#: Events of one lane that are shown.
_SHOWN: Final = 200
#: How often what is watched is looked at.
LOOK_EVERY: Final = timedelta(seconds=5)


@router.get("/projections")
def list_projections(request: Request, services: ServicesHere) -> Response:
    """Show projections and other ordered handlers, and how far they are behind."""
    return render(request, "projections.html", survey=services.surveyor.look())


@router.get("/live/projections")
async def follow_list(request: Request, services: ServicesHere) -> Response:
    """Tell a page how they do, as it is counted anew."""

    def look() -> LiveStep:
        survey = services.surveyor.look()
        html = write("projection_rows.html", survey=survey, now=services.clock.now())
        return LiveStep(html, LOOK_EVERY)

    return followed(request, services.clock, look)


@router.get("/projections/{name}")
def show_projection(request: Request, services: ServicesHere, name: Name) -> Response:
    """Show one of them, and the lanes in which something waits."""
    query = f"?{request.url.query}" if request.url.query else ""
    return render(request, "projection.html", query=query, **_story(request, services, name))


@router.get("/live/projections/{name}")
async def follow_one(request: Request, services: ServicesHere, name: Name) -> Response:
    """Tell a page how one of them does, and which lanes stand."""
    caller = caller_of(request)

    def look() -> LiveStep:
        try:
            told = _story(request, services, name)
        except Problem as problem:  # it is gone: the page says so once it is loaded anew
            return LiveStep("", LOOK_EVERY, over=problem.name)
        html = write("projection_story.html", **told, **_at(services, caller))
        return LiveStep(html, LOOK_EVERY)

    await run_in_threadpool(services.surveyor.find, name)
    return followed(request, services.clock, look)


@router.get("/projections/{name}/lane")
def show_lane(request: Request, services: ServicesHere, name: Name) -> Response:
    """Show the lane of one aggregate: what waits in it, in order, and why."""
    asked = filled(LaneQuery, request)
    one = services.surveyor.find(name).row.one
    story = lane_story(services, one, asked.address(), _SHOWN)
    letters = entries_of_lanes(services, story.view.waiting)
    return render(
        request,
        "lane.html",
        one=one,
        view=story.view,
        more=story.more,
        pending=story.pending,
        letters=letters,
        entries_away=letters.entries is None,
        entry=story.view.head and letters.entry_of(story.view.head),
        commands=what_helps(one, story.view),
    )


def _story(request: Request, services: Services, name: str) -> dict[str, Any]:
    """The values of the page of one handler; what cannot be had is a sentence on it."""
    asked = filled(LanesQuery, request)
    survey = services.surveyor.look(WHOLE)
    seen = survey.find(name)
    one, problem, page, types = seen.row.one, "", LanePage((), ""), {}
    try:
        page = lane_page(services, one, after=asked.after, limit=_ON_A_PAGE, blocked=asked.blocked)
        types = dict(by_type(services, one))
    except (AngzarrError, Problem) as error:
        problem = _sentence(error)
    letters = entries_of_lanes(services, (lane.first for lane in page.lanes))
    return {
        "one": seen,
        "survey": survey,
        "asked": asked,
        "problem": problem,
        "types": types,
        "lanes": [_told(one, lane, letters) for lane in page.lanes],
        "entries_away": letters.entries is None,
        "ready": LaneState.READY,
        "next_page": next_query(request, page.next),
    }


def _told(one: OrderedHandler, lane: Standing, letters: Letters) -> tuple[Any, ...]:
    """A lane, how it stands, the commands that help, and the entry that holds it up."""
    view = view_of(lane)
    letter = view.head if view.state is LaneState.BLOCKED else None
    return lane, view, what_helps(one, view), letter and letters.entry_of(letter)


def _sentence(error: Exception) -> str:
    problem = problem_of(error)
    if problem is None or problem.status < 409:  # noqa: PLR2004 - what was asked wrongly
        raise error
    return problem.detail


def _at(services: Services, caller: Caller) -> dict[str, Any]:
    return {"now": services.clock.now(), "can_act": caller.role.covers(Role.OPERATOR)}
