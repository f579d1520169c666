"""Groups of failures over HTTP: list, show, amend, and a verb for all their entries."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from angzarr.analysis.ledger.group import group_detail_json, group_json, group_page_json
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.dashboard import actions
from angzarr.dashboard.api.entries import AS_SEEN, IfMatch, results_json
from angzarr.dashboard.api.requests import Amended, GroupQuery, GroupVerb
from angzarr.dashboard.api.route import (
    CallerHere,
    ChoiceHere,
    ServicesHere,
    acting,
    answer,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import (
    Fingerprint,
    GroupDetailShape,
    GroupPageShape,
    GroupShape,
    ResultsShape,
)
from angzarr.dashboard.paging import next_link, page_after, sealed, seen, tag_of
from angzarr.dashboard.preconditions import About, act_on_found
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import group_of

see = seeing("groups")
act = acting("groups")
_NONE: Final = problems({404: "There is no such group."})
_STALE: Final = problems(
    {
        400: "If-Match is not an ETag.",
        412: "It was changed meanwhile.",
        428: "If-Match is missing.",
    }
)


@see.get("/groups", response_model=GroupPageShape, responses=problems({400: "No cursor."}))
def list_groups(
    request: Request, services: ServicesHere, asked: Annotated[GroupQuery, Query()]
) -> Response:
    """List groups of failures, the one that failed last first."""
    page = page_after(
        asked.after,
        lambda after: services.groups.get_groups(asked.wanted(), limit=asked.limit, after=after),
    )
    told = group_page_json(page) | {"next": sealed(page.next) or None}
    return answer(told, headers=next_link(request, page.next))


@see.get("/groups/{fingerprint}", response_model=GroupDetailShape, responses=_NONE)
def show_group(services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Return one group, and what people did with it."""
    group = group_of(services, fingerprint)
    told = group_detail_json(group, services.groups.group_history(fingerprint))
    return answer(told, headers={"ETag": tag_of(group.revision)})


@act.patch("/groups/{fingerprint}", response_model=GroupShape, responses={**_NONE, **_STALE})
def amend_group(
    services: ServicesHere,
    caller: CallerHere,
    fingerprint: Fingerprint,
    asked: Amended,
    if_match: IfMatch = None,
) -> Response:
    """Change a group's owner, note, status or mute; `If-Match` names what you saw."""
    revision = seen(if_match)
    if if_match is None:
        msg = "send If-Match with the ETag of the group as you saw it"
        raise Problem(428, "if-match-missing", msg)
    if revision is None:
        revision = group_of(services, fingerprint).revision
    group = actions.amend_group(
        services, fingerprint, asked.amendment(), revision=revision, by=caller
    )
    return answer(group_json(group), headers={"ETag": tag_of(group.revision)})


@act.post("/groups/{fingerprint}/acts", response_model=ResultsShape, responses={**_NONE, **AS_SEEN})
def act_on_group(
    services: ServicesHere,
    caller: CallerHere,
    choice: ChoiceHere,
    fingerprint: Fingerprint,
    asked: GroupVerb,
) -> Response:
    """Do a verb to the entries of a group as its dry run told them."""
    group_of(services, fingerprint)
    about = About(EntryFilter(fingerprint=fingerprint), None, asked.verb, asked.limit)
    all_of_them = actions.BulkRequest(asked.verb, asked.note, caller, asked.dry_run)
    told = act_on_found(services, about, all_of_them, choice, asked.sight)
    return answer(results_json(told, dry_run=asked.dry_run))
