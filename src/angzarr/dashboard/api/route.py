"""Route: every route of the API lets its caller in, checks the body's type, and writes once.

A write with an `Idempotency-Key` is done once and answered the same each time (A5). The entries
that it acts on are chosen once, too: a repeated request acts on the same ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from fastapi import APIRouter, Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.responses import Response

from angzarr.analysis.ledger.export import json_text
from angzarr.analysis.ledger.idempotent_requests import (
    WRITE_LEASE,
    Found,
    RecordedAnswer,
    RequestBegun,
    RequestDiffers,
    RequestRunning,
    WriteKey,
    Writes,
)
from angzarr.dashboard.access import Auth, Caller
from angzarr.dashboard.actions import Choice
from angzarr.dashboard.problem import MEDIA_TYPE, Problem, problem_of
from angzarr.dashboard.services import Services
from angzarr.errors import LedgerUnavailable
from angzarr.facts.act import ActOrigin, acting_from
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
        """The handler that lets the caller in and then does what the route is for."""
        handle = super().get_route_handler()
        role, takes_body = self.role, self.body_field
        writes = bool((self.methods or set()) & _WRITES)

        async def guarded(request: Request) -> Response:
            auth: Auth = request.app.state.auth
            caller = auth.admit(request, role)
            _check_query(request.query_params)
            if takes_body:
                _check_type(request.headers.get("content-type", ""))
            key = request.headers.get("idempotency-key")
            services: Services = request.app.state.services
            with turn(), acting_from(ActOrigin.API):
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
    """A route for viewers."""

    role = Role.VIEWER


class OperatorRoute(GuardedRoute):
    """A route for operators."""

    role = Role.OPERATOR


class ApproverRoute(GuardedRoute):
    """A route for approvers."""

    role = Role.APPROVER


def problems(told: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """The answers *told* as problems, for the description of a route."""
    return {
        status: {
            "description": text,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, text in told.items()
    }


def seeing(tag: str) -> APIRouter:
    """A router for viewers."""
    return _router(tag, ViewerRoute)


def acting(tag: str, prefix: str = PREFIX) -> APIRouter:
    """A router for operators."""
    return _router(tag, OperatorRoute, prefix)


def approving(tag: str) -> APIRouter:
    """A router for approvers."""
    return _router(tag, ApproverRoute)


def _router(tag: str, kind: type[GuardedRoute], prefix: str = PREFIX) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag], route_class=kind, dependencies=list(_SCHEMES))


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """*value* as the answer."""
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


#: The longest key; a UUID has 36 characters.
LONGEST_KEY: Final = 200
_KEY_FORM: Final = re.compile(f"[!-~]{{1,{LONGEST_KEY}}}")
#: These say that nothing was begun: the key is free for the request put right.
_UNBEGUN: Final = frozenset({400, 401, 403, 415, 422, 428, 429})
_KEPT_HEADERS: Final = ("content-type", "location", "etag")

Handle = Callable[[Request], Awaitable[Response]]


async def once(request: Request, writes: Writes, caller: str, key: str, handle: Handle) -> Response:
    """Answer *request* by *handle*, or as it was answered before under *key*."""
    if not _KEY_FORM.fullmatch(key):
        msg = f"an Idempotency-Key has 1 to {LONGEST_KEY} characters of ASCII without spaces"
        raise Problem(400, "bad-idempotency-key", msg)
    write, token = WriteKey(caller, key), secrets.token_hex(16)
    fingerprint = await _fingerprint(request)
    found = await run_in_threadpool(writes.begin, write, fingerprint, token)
    if not isinstance(found, RequestBegun):
        return _standing(found)
    request.state.choice = Choice.of(writes, write, token, found.choice)
    try:
        async with _held(writes, write, fingerprint, token):
            response = await _answered(request, handle)
    except BaseException:
        await run_in_threadpool(writes.forget, write, token)
        raise
    if response.status_code in _UNBEGUN or response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        await run_in_threadpool(writes.forget, write, token)
    else:
        await run_in_threadpool(writes.finish, write, token, _recorded(response))
    return response


@asynccontextmanager
async def _held(
    writes: Writes, write: WriteKey, fingerprint: str, token: str
) -> AsyncIterator[None]:
    """Renew the lease while it is worked on."""
    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set():
            try:
                await asyncio.wait_for(over.wait(), WRITE_LEASE.total_seconds() / 3)
            except TimeoutError:
                with suppress(LedgerUnavailable):
                    await run_in_threadpool(writes.begin, write, fingerprint, token)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        await renewing


async def _answered(request: Request, handle: Handle) -> Response:
    """The answer, also where it is a problem; a bug of ours stays an error."""
    try:
        return await handle(request)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        return problem.response()


def _standing(found: Found) -> Response:
    match found:
        case RecordedAnswer():
            headers = {**dict(found.headers), "Idempotency-Replayed": "true"}
            return Response(found.body, found.status, headers)
        case RequestRunning(retry_after):
            seconds = max(1, round(min(retry_after.total_seconds(), 5)))
            msg = "the first request with this Idempotency-Key is still worked on"
            raise Problem(409, "still-running", msg, headers={"Retry-After": str(seconds)})
        case RequestDiffers():
            msg = "this Idempotency-Key was used for another request"
            raise Problem(422, "key-used", msg)
        case RequestBegun():  # pragma: no cover - its caller works on it
            raise AssertionError


def _recorded(response: Response) -> RecordedAnswer:
    headers = tuple(
        (name, response.headers[name]) for name in _KEPT_HEADERS if name in response.headers
    )
    return RecordedAnswer(status=response.status_code, body=bytes(response.body), headers=headers)


async def _fingerprint(request: Request) -> str:
    """The digest of all that makes this request another one."""
    asked = (request.method, request.url.path, request.url.query, request.headers.get("if-match"))
    digest = hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass"))
    digest.update(await request.body())
    return digest.hexdigest()
