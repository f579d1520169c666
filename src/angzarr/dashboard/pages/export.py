"""The files that a person takes along from the page of entries."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from angzarr.dashboard.api.route import DeskHere
from angzarr.dashboard.exporting import ExportQuery, export
from angzarr.dashboard.pages.asked import filled
from angzarr.dashboard.pages.route import caller_of, pages

router = pages()


@router.get("/entries/export")
def export_entries(request: Request, desk: DeskHere) -> Response:
    """Give the entries of a filter as a file."""
    asked = filled(ExportQuery, request)
    return export(desk, request.app.state.streams, asked, caller_of(request))
