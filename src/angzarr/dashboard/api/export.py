"""Export over HTTP: entries or letters as one stream of lines; pages use the same stream (A5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Any, Final, Self

from fastapi import Query, Request
from pydantic import Field, model_validator
from starlette.responses import Response

from angzarr.analysis.ledger.export import Format, entry_lines, letter_lines
from angzarr.analysis.replay.bulk_actions import in_status
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.requests import Filter
from angzarr.dashboard.api.route import CallerHere, ServicesHere, seeing
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services
from angzarr.dashboard.streams import Stream, Streams
from angzarr.settings.dashboard import Role

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


def export(services: Services, streams: Streams, asked: ExportQuery, caller: Caller) -> Stream:
    """Return the stream of what is asked for; a ledger that is away is told before it begins.

    One that goes away amid it breaks the connection off: half an answer never looks whole.
    """
    if asked.letters and not caller.role.covers(Role.OPERATOR):
        raise Problem(403, "role", f"letters take the role {Role.OPERATOR}; entries do not")
    found = islice(in_status(services.ledger, asked.wanted(), asked.status), asked.limit)
    entries = chain(list(islice(found, 1)), found)  # the first page is read now
    lines = (
        letter_lines(services.ledger, entries)
        if asked.letters
        else entry_lines(entries, asked.format)
    )
    what = "letters" if asked.letters else "entries"
    name = f"angzarr-{what}.{asked.format}"
    return streams.held(
        caller.name,
        _chunks(lines),
        counts=_LETTERS_COUNT if asked.letters else 1,
        media_type=TYPES[asked.format],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
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


see = seeing("entries")
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
    return export(services, request.app.state.streams, asked, caller)
