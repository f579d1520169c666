"""Site: the application that a server runs: the API, the pages, and the shell around both."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from angzarr._version import __version__
from angzarr.adapters.memory.limits import InProcessLimits
from angzarr.dashboard import alerts, brake, breakers, configurations, costs, groups, sagas
from angzarr.dashboard.access import Access, Auth, Sessions, start_token
from angzarr.dashboard.api import edits, entries, facts, jobs, projections
from angzarr.dashboard.api.route import PREFIX, CallerHere, answer, seeing
from angzarr.dashboard.api.shapes import MeShape, ProblemShape
from angzarr.dashboard.pages import edits as edit_pages
from angzarr.dashboard.pages import entries as entry_pages
from angzarr.dashboard.pages import facts as fact_pages
from angzarr.dashboard.pages import jobs as job_pages
from angzarr.dashboard.pages import projections as projection_pages
from angzarr.dashboard.pages import session
from angzarr.dashboard.pages.route import refused
from angzarr.dashboard.problem import Problem, crash, problem_of
from angzarr.dashboard.services import BrakeLight, Services
from angzarr.dashboard.shell import Shell, Streams
from angzarr.errors import AngzarrError
from angzarr.resilience.limit import Limit
from angzarr.settings.dashboard import DashboardSettings

about = seeing("about")
#: Without a token.
health: Final = APIRouter(tags=["about"])


@about.get("/me", response_model=MeShape)
def who_am_i(caller: CallerHere) -> Response:
    """Say who asks, as the audit names him, and what he may do."""
    return answer({"name": caller.name, "role": caller.role.value})


@about.get("/openapi.json", include_in_schema=False)
def describe(request: Request) -> Response:
    """The OpenAPI description of the API."""
    return answer(request.app.openapi())


@health.get("/healthz", response_model=dict[str, Any])
async def live() -> Response:
    """Say that the process serves; asks no server, and waits for no thread."""
    return answer({"status": "ok"})


_NOUNS: Final = (entries, configurations, edits, groups, jobs, facts, breakers, brake, alerts)
_PAGES: Final = (
    *(session, groups, entry_pages, edit_pages, job_pages, projection_pages, sagas),
    *(fact_pages, costs, breakers, brake, alerts),
)
#: All there is to ask for.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    health,
    about,
    jobs.approve,  # before what else is done to a job
    *(router for noun in _NOUNS for router in (noun.see, noun.act)),
    projections.see,
    sagas.see,
    costs.see,
    facts.seed,
    *(page.router for page in _PAGES),
)
_TOLD: Final = """\
What a person can do with dead letters, for programs.

* A token goes in `X-API-Key` or as bearer. Roles: viewer, operator, approver; each may do what
  those before it may.
* Every write honours `Idempotency-Key`: same key and request, same answer, for 24 hours.
* Pages are walked by `after` with the cursor `next`, or by the `Link` header.
* Errors are problems as RFC 9457 says them.
"""


class DashboardSite(NamedTuple):
    """What a server runs, and the streams that it ends before it stops."""

    app: Shell
    streams: Streams
    #: Made for this run where the settings list no tokens; else empty.
    token: str


def build_site(
    services: Services, settings: DashboardSettings, hosts: Iterable[str] = ()
) -> DashboardSite:
    """The whole application; *hosts* are names it is known by, besides the settings'."""
    key = settings.session_key
    signing = key.get_secret_value().encode() if key else secrets.token_bytes(32)
    token, tokens = "", settings.tokens
    if not tokens:
        token, known = start_token(has_approvals=services.has_approvals)
        tokens = (known,)
    access = Access(tokens, Sessions(signing, services.clock))
    streams = Streams()
    app = build_api(
        services, Auth(access, _pace(settings), InProcessLimits(services.clock)), streams
    )
    shell = Shell(app, [*settings.hosts, *hosts], local_only=access.is_open)
    return DashboardSite(shell, streams, token)


def build_api(services: Services, auth: Auth, streams: Streams) -> FastAPI:
    """The application without its shell."""
    app = _Api(
        title="angzarr",
        version=__version__,
        description=_TOLD,
        openapi_url=None,  # served by a route of our own, to callers
        docs_url=None,  # its page would fetch scripts from another host
        redoc_url=None,
    )
    app.state.services = services
    app.state.auth = auth
    app.state.streams = streams
    app.state.brake_light = BrakeLight(services.brake, services.clock)
    for router in ROUTERS:
        # `include_router` would make each route once more for this application: 50 ms of it.
        app.router.routes.extend(router.routes)
    app.mount("/static", StaticFiles(packages=[("angzarr.dashboard", "static")]), name="static")
    for kind in (Problem, HTTPException, RequestValidationError, AngzarrError, Exception):
        app.add_exception_handler(kind, _tell)
    return app


class _Api(FastAPI):
    """Describes problems once, where its routes refer to them."""

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        described = super().openapi()
        described["components"]["schemas"]["Problem"] = ProblemShape.model_json_schema()
        return described


def _pace(settings: DashboardSettings) -> Limit:
    return Limit("requests", rate=settings.rate, burst=settings.burst)


def _tell(request: Request, error: Exception) -> Response:
    problem = problem_of(error) or crash()
    is_api = request.url.path.startswith((PREFIX, facts.seed.prefix))
    return problem.response() if is_api else refused(request, problem)
