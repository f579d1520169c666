"""The login page: a token is traded for a session, so that no browser keeps it."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from angzarr.dashboard.door import Door
from angzarr.dashboard.pages.route import (
    COOKIE,
    cookie_of,
    form_of,
    go,
    pages,
    refused,
    render,
    set_cookie,
)
from angzarr.dashboard.problem import Problem

router = pages(is_open=True)


@router.get("/")
def begin() -> Response:
    """Go to what people look at first."""
    return RedirectResponse("/groups", 303)


@router.get("/login")
def ask(request: Request) -> Response:
    """Ask for a token."""
    return render(request, "login.html", back=_own(request.query_params.get("next", "/")))


@router.post("/login")
def login(request: Request) -> Response:
    """Begin a session, or say that the token is not known."""
    form, door = form_of(request), _door(request)
    known = door.login(request, form.get("token", "").strip())
    if known is None:
        msg = "that token is not known here"
        return refused(request, Problem(401, "unauthorized", msg))
    response = go(_own(form.get("next", "/")))
    set_cookie(request, response, COOKIE, door.access.sessions.begin(known))
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    """End the session, here and for whoever has a copy of its cookie."""
    response, cookie = go("/login"), cookie_of(request)
    if cookie:
        _door(request).logout(request, cookie)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _door(request: Request) -> Door:
    door: Door = request.app.state.door
    return door


def _own(path: str) -> str:
    """Return *path* if it leads to a page here, else the first page."""
    own = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if own and "\\" not in path else "/"
