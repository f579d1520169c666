"""Page routes: every page lets its caller in by session and takes forms of that session only.

Templates escape everything and make characters visible that cannot be seen. A followed page gets
each change of a part of it while it is open.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from angzarr.analysis.ledger.export import json_text
from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.replay_options import STALE_AGAIN
from angzarr.clock import Clock
from angzarr.dashboard.access import SESSION_LIFE, Access, Auth, Caller, too_little
from angzarr.dashboard.problem import Problem, problem_of
from angzarr.dashboard.services import BrakeLight
from angzarr.dashboard.shell import Streams
from angzarr.facts.act import ActOrigin, acting_from, origin_text
from angzarr.payloads.store import turn
from angzarr.runtime.text import ago, printable, span_text
from angzarr.settings.dashboard import Role

#: The cookie of a session, and that of whoever has none yet.
COOKIE: Final = "angzarr_session"
VISIT_COOKIE: Final = "angzarr_visit"
#: Browsers take a cookie of such a name over TLS alone, for this host alone (RFC 6265bis).
_OF_HOST: Final = "__Host-"
#: The field of every form that says it is of this session.
FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 50
_VISIT: Final = "visit"


class PageRoute(APIRoute):
    """A page for callers whose role covers `role`; forms take an operator."""

    role: ClassVar[Role | None] = Role.VIEWER

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that lets the caller in and then gives the page."""
        handle = super().get_route_handler()
        is_form = "POST" in (self.methods or set())
        role = self.role and (Role.OPERATOR if is_form else self.role)

        async def guarded(request: Request) -> Response:
            try:
                if role is not None and not _let_in(request, role):
                    return to_login(request)
                if is_form:
                    await _read_form(request, is_open=role is None)
                with turn(), acting_from(ActOrigin.DASHBOARD):
                    return await handle(request)
            except Exception as error:
                problem = problem_of(error)
                if problem is None:
                    raise
                return refused(request, problem)

        return guarded


class OpenPageRoute(PageRoute):
    """A page that takes no session: the one where it begins."""

    role = None


def pages(*, is_open: bool = False) -> APIRouter:
    """A router for pages."""
    kind = OpenPageRoute if is_open else PageRoute
    return APIRouter(route_class=kind, include_in_schema=False)


def render(
    request: Request, template: str, *, status: int = 200, waits: bool = True, **values: Any
) -> Response:
    """A page; what it shows of its caller comes from the request.

    It asks how the brake stands, unless it must not wait.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    auth: Auth = request.app.state.auth
    acts = caller is not None and caller.role.covers(Role.OPERATOR)
    kind, whose = _holder(request, auth.access)
    light: BrakeLight = request.app.state.brake_light
    html = write(
        template,
        caller=caller,
        can_act=acts,
        brake=light.look() if caller and waits else light.last(),
        form_token=auth.access.sessions.form_token(kind, whose),
        form_key=secrets.token_hex(16),
        now=request.app.state.services.clock.now(),
        path=request.url.path,
        done=request.query_params.get("done", ""),
        **values,
    )
    response = Response(html, status, media_type="text/html")
    if kind == _VISIT and whose != read_cookie(request, VISIT_COOKIE):
        set_cookie(request, response, VISIT_COOKIE, whose)
    return response


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Give the browser a cookie that no script reads and no other site sends."""
    response.set_cookie(
        _cookie_name(request, name),
        value,
        max_age=int(SESSION_LIFE.total_seconds()),
        secure=_is_tls(request),
        httponly=True,
        samesite="strict",
    )


def drop_cookie(request: Request, response: Response, name: str) -> None:
    """Take a cookie from the browser."""
    response.delete_cookie(
        _cookie_name(request, name), secure=_is_tls(request), httponly=True, samesite="strict"
    )


def read_cookie(request: Request, name: str) -> str:
    """The browser's cookie *name*, or an empty string."""
    return request.cookies.get(_cookie_name(request, name), "")


def _cookie_name(request: Request, name: str) -> str:
    """The name under which a browser keeps the cookie *name*.

    Without TLS the port is in it: browsers give the cookies of one port to all, and two dashboards
    of one machine must not throw each other's people out.
    """
    if _is_tls(request):
        return f"{_OF_HOST}{name}"
    port = request.url.port
    return f"{name}_{port}" if port else name


def _is_tls(request: Request) -> bool:
    return request.url.scheme == "https"


def refused(request: Request, problem: Problem) -> Response:
    """*problem* as a page."""
    status = problem.status
    response = render(request, "problem.html", status=status, waits=False, problem=problem)
    response.headers.update(problem.headers)
    return response


def go(where: str) -> Response:
    """Send the browser on after a form."""
    return RedirectResponse(where, 303)


def to_login(request: Request) -> Response:
    """Send the browser to where sessions begin, and back from there to a page."""
    query = f"?{request.url.query}" if request.url.query else ""
    back = f"{request.url.path}{query}" if request.method == "GET" else "/"
    return go(f"/login?next={quote(back)}")


def cookie_of(request: Request) -> str:
    """The session's cookie, or an empty string."""
    return read_cookie(request, COOKIE)


def form_of(request: Request) -> dict[str, str]:
    """The fields of the form that was sent."""
    form: dict[str, str] = request.state.form
    return form


def caller_of(request: Request) -> Caller:
    """The caller of the page."""
    caller: Caller = request.state.caller
    return caller


def operator_of(request: Request) -> Caller:
    """The caller of the page, if an operator; raises Problem 403."""
    caller = caller_of(request)
    if not caller.role.covers(Role.OPERATOR):
        raise too_little(caller, Role.OPERATOR)
    return caller


def _let_in(request: Request, role: Role) -> bool:
    auth: Auth = request.app.state.auth
    caller = auth.access.by_session(cookie_of(request))
    if caller is None:
        return False
    request.state.caller = caller
    auth.pass_on(caller, role)
    return True


def _holder(request: Request, access: Access) -> tuple[str, str]:
    """The holder to which the forms of a page are bound: a proved session, else a visit."""
    session = access.session(cookie_of(request))
    return ("session", session.id) if session else (_VISIT, _visit(request, access))


def _visit(request: Request, access: Access) -> str:
    """The visit of a browser; a new one where it shows none of ours."""
    shown = read_cookie(request, VISIT_COOKIE)
    return shown if access.sessions.is_visit(shown) else access.sessions.new_visit()


async def _read_form(request: Request, *, is_open: bool) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise Problem(415, "no-form", "this takes a form")
    sent = await request.form(max_fields=_MOST_FIELDS, max_files=0)
    form = {name: value for name, value in sent.items() if isinstance(value, str)}
    auth: Auth = request.app.state.auth
    shown, sessions = form.get(FORM_TOKEN, ""), auth.access.sessions
    holder = _holder(request, auth.access)
    visit = (_VISIT, _visit(request, auth.access))
    holders = (holder, visit) if is_open else (holder,)
    if not any(sessions.is_form_token(*one, shown) for one in holders):
        msg = "the form is of another session: load its page again"
        raise Problem(403, "form-token", msg)
    request.state.form = form


#: Then a stream ends; the browser comes back, and is let in anew or not at all.
LONGEST_STREAM: Final = timedelta(minutes=15)


class LiveStep(NamedTuple):
    """How a part of a page looks now."""

    html: str
    #: After that it is looked at again.
    pause: timedelta
    #: Why there is nothing more to follow, so that the page is loaded anew; empty: there is.
    over: str = ""


def followed(request: Request, clock: Clock, look: Callable[[], LiveStep]) -> Response:
    """Tell each step that *look* returns, in a thread, if it differs from the one before.

    Raises Problem 429.
    """
    streams: Streams = request.app.state.streams
    steps = _steps(request, clock, look, streams)
    return streams.held(caller_of(request).name, steps, media_type="text/event-stream")


async def _steps(
    request: Request, clock: Clock, look: Callable[[], LiveStep], streams: Streams
) -> AsyncIterator[str]:
    told, ends = "", clock.now() + LONGEST_STREAM
    while not streams.ending and not await request.is_disconnected() and clock.now() < ends:
        step = await run_in_threadpool(look)
        if step.html != told:
            told = step.html
            yield _event("progress", step.html)
        else:
            yield ": still here\n\n"
        if step.over:
            yield _event("over", step.over)
            return
        await streams.rest(step.pause)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


#: Characters of one value that a page shows; the API gives the whole.
LONGEST_SHOWN: Final = 64 * 1024


def write(template: str, **values: Any) -> str:
    """The page of *template*."""
    return _environment().get_template(template).render(values)


def shown(value: Any) -> Any:
    """*value* as a page may show it: no control characters, no endless text."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > LONGEST_SHOWN:
        more = len(value) - LONGEST_SHOWN
        value = f"{value[:LONGEST_SHOWN]}\n… and {more} characters more: the API gives them"
    return printable(value, keep="\n\t")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("angzarr.dashboard"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["stale_again"] = STALE_AGAIN
    made.filters |= {
        "ago": ago,
        "span": span_text,
        "iso": _iso,
        "utc": _utc,
        "json": lambda value: json_text(value, indent=2),
        "chosen": _chosen,
        "group_address": group_address,
        "origin_text": origin_text,
        "segment": lambda value: quote(str(value), safe="", errors="replace"),
    }
    return made


def _chosen(wanted: EntryFilter) -> list[tuple[str, str]]:
    """The fields that a filter names, as a person reads them."""
    named = ((one.name, getattr(wanted, one.name)) for one in fields(wanted))
    return [
        (name, _utc(value) if isinstance(value, datetime) else str(value))
        for name, value in named
        if value not in (None, "")
    ]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"
