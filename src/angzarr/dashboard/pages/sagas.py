"""Pages of rejected commands: all of them, and one with its chain."""

from __future__ import annotations

import shlex
from typing import Final

from fastapi import Request
from starlette.responses import Response

from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.api.sagas import CaseId, CaseQuery, entries_of_case
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import pages, render
from angzarr.dashboard.paging import next_query
from angzarr.errors import ConfigurationError
from angzarr.sagas.log import SETTLED, Case, Page, RejectionStatus
from angzarr.sagas.story import links_of

router = pages()
_ON_A_PAGE: Final = 50


@router.get("/sagas")
def list_cases(request: Request, services: ServicesHere) -> Response:
    """Show commands of sagas that were rejected, the newest first."""
    asked, problem = filled(CaseQuery, request), ""
    try:
        page = services.rejected.page(asked.wanted(), limit=_ON_A_PAGE, after=asked.cursor)
    except ConfigurationError as error:
        page, problem = Page(()), str(error)
    return render(
        request,
        "sagas.html",
        asked=asked,
        cases=page.cases,
        statuses=list(RejectionStatus),
        problem=problem,
        next_page=next_query(request, page.next),
    )


@router.get("/sagas/{case_id}")
def show_case(request: Request, services: ServicesHere, case_id: CaseId) -> Response:
    """Show everything about one rejected command: the chain, in order."""
    story = services.rejected.story(case_id)
    case = story.case
    return render(
        request,
        "case.html",
        case=case,
        links=links_of(story, services.rejected.fallback_domain),
        entries=entries_of_case(services, case),
        flow=(story.rejection or case).correlation_id,
        asked_again=_asked_again(case),
        not_settled=case.status not in SETTLED,
        command=f"angzarr saga compensate {shlex.quote(case.id)}",
    )


def _asked_again(case: Case) -> str:
    times = "once" if case.asked_again == 1 else f"{case.asked_again} times"
    return f"{times}, last by {case.asked_by}" if case.asked_by else times
