"""Route: every route of the API lets its caller in, checks the body's type, and writes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from fastapi import APIRouter, Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import QueryParams
from starlette.responses import Response

from angzarr.analysis.ledger.export import json_text
from angzarr.dashboard.access import Auth, Caller
from angzarr.dashboard.idempotency import Choice, once
from angzarr.dashboard.problem import MEDIA_TYPE, Problem
from angzarr.dashboard.services import Services
from angzarr.payloads.store import turn
from angzarr.runtime.text import printable
from angzarr.settings.dashboard import Role

PREFIX: Final = "/api/v1"
#: More than any route knows.
MOST_PARAMETERS: Final = 100
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SCHEMES: Final = (
    Security(APIKeyHeader(name="X-API-Key", scheme_name="apiKey", auto_error=False)),
    Security(HTTPBearer(scheme_name="bearer", auto_error=False)),
)
#: What every route may answer besides what it is for.
_ALWAYS: Final = {
    401: "No token, or one that is not known.",
    403: "The caller's role does not allow it, or another site's page asks.",
    413: "The body is too large.",
    422: "The request does not fit its description, or its Idempotency-Key was used for another.",
    429: "Too many requests; `Retry-After` says when to ask again.",
    500: "A fault of the dashboard.",
    503: "A server is away; `Retry-After` says when to ask again.",
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Same key and request: same answer, for 24 hours. Still running: 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "example": "0b1f1d0a-7a53-4a0e-9d3a-0c6b0d3b9a10",
}


class GuardedRoute(APIRoute):
    """A route for callers whose role covers `role`."""

    role: ClassVar[Role]

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        writes = bool(set(options.get("methods") or {"GET"}) & _WRITES)
        told = {**_ALWAYS, **(_WRITING if writes else {})}
        options["responses"] = {**problems(told), **(options.get("responses") or {})}
        if writes:
            extra = dict(options.get("openapi_extra") or {})
            options["openapi_extra"] = {**extra, "parameters": [_KEY]}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what lets the caller in and then does what the route is for."""
        handle = super().get_route_handler()
        role, writes, takes_body = (
            self.role,
            bool((self.methods or set()) & _WRITES),
            self.body_field,
        )

        async def guarded(request: Request) -> Response:
            auth: Auth = request.app.state.auth
            caller = auth.admit(request, role)
            _check_query(request.query_params)
            if takes_body:
                _check_type(request.headers.get("content-type", ""))
            key = request.headers.get("idempotency-key")
            services: Services = request.app.state.services
            with turn():
                if not writes or key is None:
                    return await handle(request)
                return await once(request, services.writes, caller.name, key, handle)

        return guarded


#: What writes may answer besides.
_WRITING: Final = {
    400: "A header or the body cannot be read.",
    409: "It does not apply now, or the same request is still worked on.",
    415: "The body is not JSON.",
}


class ViewerRoute(GuardedRoute):
    """A route for whoever may see."""

    role = Role.VIEWER


class OperatorRoute(GuardedRoute):
    """A route for whoever may act."""

    role = Role.OPERATOR


class ApproverRoute(GuardedRoute):
    """A route for whoever may approve."""

    role = Role.APPROVER


def problems(told: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the answers *told* as problems, for the description of a route."""
    return {
        status: {
            "description": text,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, text in told.items()
    }


def seeing(tag: str) -> APIRouter:
    """Return a router for viewers."""
    return _router(tag, ViewerRoute)


def acting(tag: str) -> APIRouter:
    """Return a router for operators."""
    return _router(tag, OperatorRoute)


def approving(tag: str) -> APIRouter:
    """Return a router for approvers."""
    return _router(tag, ApproverRoute)


def _router(tag: str, kind: type[GuardedRoute]) -> APIRouter:
    return APIRouter(prefix=PREFIX, tags=[tag], route_class=kind, dependencies=list(_SCHEMES))


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return *value* as the answer."""
    return Response(json_text(value), status, headers, "application/json")


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _choice(request: Request) -> Choice:
    choice: Choice | None = getattr(request.state, "choice", None)
    return choice or Choice()


#: What a request acts on, the same each time it is sent under one key.
ChoiceHere: TypeAlias = Annotated[Choice, Depends(_choice)]
#: What an endpoint works on, and for whom.
ServicesHere: TypeAlias = Annotated[Services, Depends(_services)]
CallerHere: TypeAlias = Annotated[Caller, Depends(_caller)]


def _check_query(asked: QueryParams) -> None:
    """Refuse a parameter that is given twice: which one would count is anybody's guess."""
    names = Counter(name for name, _ in asked.multi_items())
    if names.total() > MOST_PARAMETERS:
        raise Problem(422, "invalid", f"a query has {MOST_PARAMETERS} parameters at most")
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise Problem(422, "invalid", f"{printable(twice[0])} is given twice")


def _check_type(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "no-json", "send the body as Content-Type: application/json")
