"""The files that a person takes along from the page of entries."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from angzarr.dashboard.api.export import ExportQuery, export
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import caller_of, pages

router = pages()


@router.get("/entries/export")
def export_entries(request: Request, services: ServicesHere) -> Response:
    """Give the entries of a filter as a file."""
    asked = filled(ExportQuery, request)
    return export(services, request.app.state.streams, asked, caller_of(request))
