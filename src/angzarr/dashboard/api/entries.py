"""Entries over HTTP: list, show, export, and what a person does with them (A5).

The export is one stream of lines; pages give the same stream. Its path is matched before an
entry's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Any, Final, Self

from fastapi import Header, Query, Request
from pydantic import Field, model_validator
from starlette.responses import Response

from angzarr.analysis.ledger.export import (
    Format,
    entry_detail_json,
    entry_lines,
    entry_page_json,
    letter_lines,
    seen_json,
    stats_json,
)
from angzarr.analysis.replay.bulk_actions import in_status
from angzarr.dashboard import actions
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.requests import EntryQuery, Filter, ManyVerb, OneVerb
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
from angzarr.dashboard.paging import cursor_after, next_link, sealed, seen, tag_of
from angzarr.dashboard.preconditions import About, Outcome, act_on_found, act_on_named
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, detail_of, explained, protection_of
from angzarr.dashboard.shell import Stream, Streams
from angzarr.settings.dashboard import Role

see = seeing("entries")
act = acting("entries")
_NONE: Final = problems({404: "There is no such entry."})
_STALE: Final = problems({400: "If-Match is not an ETag.", 412: "It was changed meanwhile."})
#: What a verb for many may answer besides.
AS_SEEN: Final = problems(
    {412: "By now it is about other entries; nothing was done.", 428: "`seen` is missing."}
)
IfMatch = Annotated[str | None, Header(description='The ETag of what you saw, like "1".')]


#: Entries of one answer at most; the command line writes any number.
MOST_EXPORTED: Final = 100_000
#: Entries of one answer where the caller says nothing.
EXPORTED: Final = 10_000
#: What each format is called.
TYPES: Final = {Format.JSONL: "application/x-ndjson", Format.CSV: "text/csv; charset=utf-8"}
#: As many streams counts one of letters: each may have a letter of 32 MiB in hand.
_LETTERS_COUNT: Final = 10
#: Bytes that are sent at once.
_CHUNK: Final = 64 * 1024


class ExportQuery(Filter):
    """Which entries, and how; those that failed last first."""

    format: Format = Format.JSONL
    letters: bool = Field(default=False, description="Letters, as `dlq import` reads them.")
    limit: int = Field(default=EXPORTED, ge=1, le=MOST_EXPORTED)

    @model_validator(mode="after")
    def _letters_are_json(self) -> Self:
        if self.letters and self.format is not Format.JSONL:
            msg = "letters are JSON lines: leave format=csv out"
            raise ValueError(msg)
        return self


def export_stream(
    services: Services, streams: Streams, asked: ExportQuery, caller: Caller
) -> Stream:
    """The stream of what is asked for; a ledger that is away is told before it begins.

    One that goes away amid it breaks the connection off: half an answer never looks whole.
    """
    if asked.letters and not caller.role.covers(Role.OPERATOR):
        raise Problem(403, "role", f"letters take the role {Role.OPERATOR}; entries do not")
    found = islice(in_status(services.ledger, asked.wanted(), asked.status), asked.limit)
    entries = chain(list(islice(found, 1)), found)  # the first page is read now
    if asked.letters:
        what, lines, counts = "letters", letter_lines(services.ledger, entries), _LETTERS_COUNT
    else:
        what, lines, counts = "entries", entry_lines(entries, asked.format), 1
    return streams.held(
        caller.name,
        _chunks(lines),
        counts=counts,
        media_type=TYPES[asked.format],
        headers={"Content-Disposition": f'attachment; filename="angzarr-{what}.{asked.format}"'},
    )


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Put lines together, and take large ones apart: each chunk is a step of another thread."""
    held = bytearray()
    for line in lines:
        for at in range(0, len(line), _CHUNK):
            held += line[at : at + _CHUNK]
            if len(held) >= _CHUNK:
                yield bytes(held)
                held.clear()
    yield bytes(held)


_LINES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "One line an entry, or a letter.",
        "content": {kind.partition(";")[0]: {} for kind in TYPES.values()},
    }
}


@see.get("/entries/export", response_class=Response, responses=_LINES)
def export_entries(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    asked: Annotated[ExportQuery, Query()],
) -> Response:
    """Stream entries as JSON lines or CSV; letters, for operators, as `dlq import` reads them.

    As many lines as `limit`: there may be more. A connection that breaks off: there are.
    """
    return export_stream(services, request.app.state.streams, asked, caller)


@see.get("/entries", response_model=EntryPageShape, responses=problems({400: "No cursor."}))
def list_entries(
    request: Request, services: ServicesHere, asked: Annotated[EntryQuery, Query()]
) -> Response:
    """List entries, the one that failed last first."""
    page = services.ledger.get_failed_events(
        asked.wanted(), status=asked.status, limit=asked.limit, after=cursor_after(asked.after)
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
    bulk = actions.BulkRequest(asked.verb, asked.note, caller, asked.dry_run)
    if asked.filter is None:
        told = act_on_named(services, asked.entry_ids, bulk, choice, asked.precondition)
    else:
        about = About(asked.filter.wanted(), asked.filter.status, asked.verb, asked.limit)
        told = act_on_found(services, about, bulk, choice, asked.precondition)
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
    """The results of many entries as a JSON object."""
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
        "seen": told.precondition and told.precondition._asdict(),
    }
