"""Pages of ordered handlers: all of them, one with the lanes that stand, and one lane."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.projections import LaneQuery, LanesQuery, Name
from angzarr.dashboard.api.route import DeskHere
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.lane_look import (
    LanePage,
    Letters,
    by_type,
    lane_page,
    lane_story,
    letters_of,
)
from angzarr.dashboard.pages.asked import filled
from angzarr.dashboard.pages.following import Step, followed
from angzarr.dashboard.pages.paper import write
from angzarr.dashboard.pages.route import caller_of, pages, render
from angzarr.dashboard.paging import next_query
from angzarr.dashboard.problem import Problem, problem_of
from angzarr.dashboard.survey import WHOLE
from angzarr.errors import AngzarrError
from angzarr.ordering.lane import Standing
from angzarr.ordering.lane_view import LaneState, view_of
from angzarr.projections.ordered_handler import Ordered, what_helps
from angzarr.settings.dashboard import Role

router = pages()
_ON_A_PAGE: Final = 50
#: Events of one lane that are shown.
_SHOWN: Final = 200
#: How often what is watched is looked at.
LOOK_EVERY: Final = timedelta(seconds=5)


@router.get("/projections")
def list_projections(request: Request, desk: DeskHere) -> Response:
    """Show projections and other ordered handlers, and how far they are behind."""
    return render(request, "projections.html", survey=desk.surveyor.look())


@router.get("/live/projections")
async def follow_list(request: Request, desk: DeskHere) -> Response:
    """Tell a page how they do, as it is counted anew."""

    def look() -> Step:
        survey = desk.surveyor.look()
        html = write("projection_rows.html", survey=survey, now=desk.clock.now())
        return Step(html, LOOK_EVERY)

    return followed(request, desk.clock, look)


@router.get("/projections/{name}")
def show_projection(request: Request, desk: DeskHere, name: Name) -> Response:
    """Show one of them, and the lanes in which something waits."""
    query = f"?{request.url.query}" if request.url.query else ""
    return render(request, "projection.html", query=query, **_story(request, desk, name))


@router.get("/live/projections/{name}")
async def follow_one(request: Request, desk: DeskHere, name: Name) -> Response:
    """Tell a page how one of them does, and which lanes stand."""
    caller = caller_of(request)

    def look() -> Step:
        try:
            told = _story(request, desk, name)
        except Problem as problem:  # it is gone: the page says so once it is loaded anew
            return Step("", LOOK_EVERY, over=problem.name)
        html = write("projection_story.html", **told, **_at(desk, caller))
        return Step(html, LOOK_EVERY)

    await run_in_threadpool(desk.surveyor.find, name)
    return followed(request, desk.clock, look)


@router.get("/projections/{name}/lane")
def show_lane(request: Request, desk: DeskHere, name: Name) -> Response:
    """Show the lane of one aggregate: what waits in it, in order, and why."""
    asked = filled(LaneQuery, request)
    one = desk.surveyor.find(name).row.one
    story = lane_story(desk, one, asked.address(), _SHOWN)
    letters = letters_of(desk, story.view.waiting)
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


def _story(request: Request, desk: Desk, name: str) -> dict[str, Any]:
    """Return what the page of one of them shows; what cannot be had is a sentence on it."""
    asked = filled(LanesQuery, request)
    survey = desk.surveyor.look(WHOLE)
    seen = survey.find(name)
    one, problem, page, types = seen.row.one, "", LanePage((), ""), {}
    try:
        page = lane_page(desk, one, after=asked.after, limit=_ON_A_PAGE, blocked=asked.blocked)
        types = dict(by_type(desk, one))
    except (AngzarrError, Problem) as error:
        problem = _sentence(error)
    letters = letters_of(desk, (lane.first for lane in page.lanes))
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


def _told(one: Ordered, lane: Standing, letters: Letters) -> tuple[Any, ...]:
    """Return a lane, how it stands, the commands that help, and the entry that holds it up."""
    view = view_of(lane)
    letter = view.head if view.state is LaneState.BLOCKED else None
    return lane, view, what_helps(one, view), letter and letters.entry_of(letter)


def _sentence(error: Exception) -> str:
    problem = problem_of(error)
    if problem is None or problem.status < 409:  # noqa: PLR2004 - what was asked wrongly
        raise error
    return problem.detail


def _at(desk: Desk, caller: Caller) -> dict[str, Any]:
    return {"now": desk.clock.now(), "can_act": caller.role.covers(Role.OPERATOR)}
