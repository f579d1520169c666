"""What the API says of itself: who asks, its description, and whether it lives."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from angzarr.dashboard.api.route import CallerHere, answer, seeing
from angzarr.dashboard.api.shapes import MeShape

see = seeing("about")
#: Without a token.
health: Final = APIRouter(tags=["about"])


@see.get("/me", response_model=MeShape)
def who_am_i(caller: CallerHere) -> Response:
    """Say who asks, as the audit names him, and what he may do."""
    return answer({"name": caller.name, "role": caller.role.value})


@see.get("/openapi.json", include_in_schema=False)
def describe(request: Request) -> Response:
    """Return the OpenAPI description of the API."""
    return answer(request.app.openapi())


@health.get("/healthz", response_model=dict[str, Any])
async def live() -> Response:
    """Say that the process serves; asks no server, and waits for no thread."""
    return answer({"status": "ok"})
