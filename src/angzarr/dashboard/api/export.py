"""Entries and letters over HTTP as one stream of lines (spec A5)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response

from angzarr.dashboard.api.route import CallerHere, DeskHere, seeing
from angzarr.dashboard.exporting import TYPES, ExportQuery, export

see = seeing("entries")
_LINES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "One line an entry, or a letter.",
        "content": {kind.partition(";")[0]: {} for kind in TYPES.values()},
    }
}


@see.get("/entries/export", response_class=Response, responses=_LINES)
def export_entries(
    request: Request, desk: DeskHere, caller: CallerHere, asked: Annotated[ExportQuery, Query()]
) -> Response:
    """Stream entries as JSON lines or CSV; letters, for operators, as `dlq import` reads them.

    As many lines as `limit`: there may be more. A connection that breaks off: there are.
    """
    return export(desk, request.app.state.streams, asked, caller)
