"""Entries over HTTP: list, show, and what a person does with them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header, Query, Request
from starlette.responses import Response

from angzarr.analysis.ledger.export import entry_detail_json, entry_page_json, seen_json, stats_json
from angzarr.dashboard import actions
from angzarr.dashboard.api.requests import EntryQuery, ManyVerb, OneVerb
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
    EntryDetailShape,
    EntryId,
    EntryPageShape,
    EntryShape,
    ExplanationShape,
    ResultsShape,
    StatsShape,
)
from angzarr.dashboard.paging import next_link, page_after, sealed, seen, tag_of
from angzarr.dashboard.preconditions import About, Outcome, act_on_found, act_on_named
from angzarr.dashboard.services import detail_of, explained, protection_of

see = seeing("entries")
act = acting("entries")
_NONE: Final = problems({404: "There is no such entry."})
_STALE: Final = problems({400: "If-Match is not an ETag.", 412: "It was changed meanwhile."})
#: What a verb for many may answer besides.
AS_SEEN: Final = problems(
    {412: "By now it is about other entries; nothing was done.", 428: "`seen` is missing."}
)
IfMatch = Annotated[str | None, Header(description='The ETag of what you saw, like "1".')]


@see.get("/entries", response_model=EntryPageShape, responses=problems({400: "No cursor."}))
def list_entries(
    request: Request, services: ServicesHere, asked: Annotated[EntryQuery, Query()]
) -> Response:
    """List entries, the one that failed last first."""
    page = page_after(
        asked.after,
        lambda after: services.ledger.get_failed_events(
            asked.wanted(), status=asked.status, limit=asked.limit, after=after
        ),
    )
    behind = services.behind(page.entries)
    told = entry_page_json(page, behind) | {"next": sealed(page.next) or None}
    return answer(told, headers=next_link(request, page.next))


@see.get("/entries/{entry_id}", response_model=EntryDetailShape, responses=_NONE)
def show_entry(services: ServicesHere, entry_id: EntryId) -> Response:
    """Return everything about one entry: its letter, its history, who can open it."""
    detail = detail_of(services, entry_id)
    told = entry_detail_json(detail, services.behind([detail.entry]))
    told |= {"protection": protection_of(services, detail)}
    return answer(told, headers={"ETag": tag_of(detail.entry.revision)})


@see.get("/entries/{entry_id}/explanation", response_model=ExplanationShape, responses=_NONE)
def explain_entry(services: ServicesHere, entry_id: EntryId) -> Response:
    """Tell how an entry would be classified now: every rule tried, and all the evidence."""
    return answer(explained(services, detail_of(services, entry_id)))


@see.get("/stats", response_model=StatsShape)
def show_stats(services: ServicesHere) -> Response:
    """Count all entries, and what waits unread in the queues."""
    unread = {domain: depth.waiting for domain, depth in services.unread().items()}
    return answer(stats_json(services.ledger.get_failure_stats()) | {"unread": unread})


@act.post("/acts", response_model=ResultsShape, responses=AS_SEEN)
def act_on_entries(
    services: ServicesHere, caller: CallerHere, choice: ChoiceHere, asked: ManyVerb
) -> Response:
    """Do a verb to entries by id, or to all that a filter finds as its dry run told them."""
    all_of_them, seen_then = (
        actions.BulkRequest(asked.verb, asked.note, caller, asked.dry_run),
        asked.sight,
    )
    if asked.filter is None:
        told = act_on_named(services, asked.entry_ids, all_of_them, choice, seen_then)
    else:
        about = About(asked.filter.wanted(), asked.filter.status, asked.verb, asked.limit)
        told = act_on_found(services, about, all_of_them, choice, seen_then)
    return answer(results_json(told, dry_run=asked.dry_run))


@act.post("/entries/{entry_id}/acts", response_model=EntryShape, responses={**_NONE, **_STALE})
def act_on_entry(
    services: ServicesHere,
    caller: CallerHere,
    entry_id: EntryId,
    asked: OneVerb,
    if_match: IfMatch = None,
) -> Response:
    """Skip, archive, restore, escalate or resolve one entry."""
    entry = actions.act_on_one(
        services, entry_id, asked.verb, asked.note, by=caller, revision=seen(if_match)
    )
    told = seen_json(entry, services.behind([entry]))
    return answer(told, headers={"ETag": tag_of(entry.revision)})


def results_json(told: Outcome, *, dry_run: bool) -> dict[str, Any]:
    """Return what became of many entries as a JSON object."""
    results = told.results
    refused = sum(bool(one.problem) for one in results)
    begun = sum(one.begun for one in results)
    return {
        "dry_run": dry_run,
        "done": 0 if dry_run else len(results) - refused - begun,
        "begun": begun,
        "refused": refused,
        "results": [
            {"id": one.entry_id, "problem": one.problem or None, "begun": one.begun}
            for one in results
        ],
        "seen": told.sight and told.sight._asdict(),
    }
