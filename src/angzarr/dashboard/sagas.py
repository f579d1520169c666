"""Rejected commands of sagas: their API and pages, with their chains and dead letters (C4, C5)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter
from angzarr.dashboard.api.route import ServicesHere, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Shape, Text
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import pages, render
from angzarr.dashboard.paging import next_link, next_query, sealed, text_after
from angzarr.dashboard.services import Services
from angzarr.errors import AngzarrError, ConfigurationError
from angzarr.sagas.log import SETTLED, Case, CaseFilter, Page, RejectionStatus
from angzarr.sagas.rejection import told_id
from angzarr.sagas.rejection_answers import CompensationStep
from angzarr.sagas.story import links_of, page_json, story_json

#: Letters of one telling; more than one is rare.
_MOST: Final = 5


def entries_of_case(services: Services, case: Case) -> Sequence[Entry] | None:
    """The entries of the first and the last time that the source of *case* was told.

    None: the ledger is away.
    """
    ids = dict.fromkeys(told_id(case.id, asked) for asked in (0, case.asked_again))
    found: list[Entry] = []
    try:
        for event_id in ids:
            wanted = EntryFilter(event_id=event_id)
            found += services.ledger.get_failed_events(wanted, status=None, limit=_MOST).entries
    except AngzarrError:
        return None
    return found


see = seeing("sagas")
_SETUP: Final = {409: "No database is set up for event books: set books."}
_NONE: Final = problems({404: "There is no such case.", **_SETUP})
CaseId = Annotated[str, Path(pattern=r"^[^\x00-\x1f/]{1,500}$")]


class AddressShape(Shape):
    """An aggregate."""

    domain: str
    root: str
    edition: str


class CaseShape(Shape):
    """A rejected command, and what its source did about it."""

    id: str
    status: RejectionStatus
    saga: str
    source: AddressShape
    source_sequence: int
    command_id: str
    command_type: str
    target: AddressShape
    reason: str
    answer: str
    correlation_id: str
    rejected_at: datetime
    changed_at: datetime
    first_event: int | None
    event_count: int
    steps: list[CompensationStep]
    asked_again: int
    asked_by: str
    note: str


class CasePageShape(Shape):
    """A page of rejected commands, the newest first."""

    cases: list[CaseShape]
    next: str | None


class CaseDetailShape(CaseShape):
    """A case and its chain; `entries` are its dead letters, null where the ledger is away.

    The data of events are there with `data=true`, redacted as in letters.
    """

    trigger: dict[str, Any] | None
    command: dict[str, Any] | None
    compensation: list[dict[str, Any]]
    escalation_id: str | None
    failure_id: str | None
    entries: list[str] | None


class CaseQuery(Asked):
    """A page of rejected commands, the newest first."""

    saga: Text | None = None
    domain: Text | None = Field(default=None, description="Of the source, which compensates.")
    status: RejectionStatus | None = None
    correlation_id: Text | None = None
    limit: int = Field(default=50, ge=1, le=LONGEST_PAGE)
    after: Annotated[str, Field(max_length=4000)] = ""

    def wanted(self) -> CaseFilter:
        """The filter."""
        return CaseFilter(self.saga, self.domain, self.status, self.correlation_id)

    @property
    def cursor(self) -> str:
        """Behind which case the page begins; raises Problem."""
        return text_after(self.after) if self.after else ""


class StoryQuery(Asked):
    """How much of a case."""

    data: bool = Field(default=False, description="Also the data of events.")


@see.get("/sagas", response_model=CasePageShape, responses=problems({400: "No cursor.", **_SETUP}))
def list_cases(
    request: Request, services: ServicesHere, asked: Annotated[CaseQuery, Query()]
) -> Response:
    """List commands of sagas that were rejected, the newest first."""
    page = services.rejected.page(asked.wanted(), limit=asked.limit, after=asked.cursor)
    told = page_json(page) | {"next": sealed(page.next) or None}
    return answer(told, headers=next_link(request, page.next))


@see.get("/sagas/{case_id}", response_model=CaseDetailShape, responses=_NONE)
def show_case(
    services: ServicesHere, case_id: CaseId, asked: Annotated[StoryQuery, Query()]
) -> Response:
    """Return everything about one rejected command: the chain, in order."""
    story = services.rejected.story(case_id)
    told = story_json(story, services.rejected.data(story) if asked.data else None)
    entries = entries_of_case(services, story.case)
    ids = None if entries is None else [one.id for one in entries]
    return answer(told | {"entries": ids})


router = pages()
_ON_A_PAGE: Final = 50


@router.get("/sagas")
def cases_page(request: Request, services: ServicesHere) -> Response:
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
def case_page(request: Request, services: ServicesHere, case_id: CaseId) -> Response:
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
