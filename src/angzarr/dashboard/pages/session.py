"""The login page: a token is traded for a session, so that no browser keeps it."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from angzarr.dashboard.access import Auth
from angzarr.dashboard.pages.route import (
    COOKIE,
    cookie_of,
    drop_cookie,
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
    """Ask for a token; one that was printed at the start may come with the link to here."""
    auth, shown = _auth_of(request), request.query_params.get("token", "")
    if shown and auth.access.is_open:  # a token that lasts has no business in an address
        return _begun(request, shown, "/")
    back = _own(request.query_params.get("next", "/"))
    return render(request, "login.html", back=back, is_open=auth.access.is_open)


@router.post("/login")
def login(request: Request) -> Response:
    """Begin a session, or say that the token is not known."""
    form = form_of(request)
    return _begun(request, form.get("token", "").strip(), form.get("next", "/"))


def _begun(request: Request, token: str, back: str) -> Response:
    """Begin a session for the owner of *token*, and lead to the page *back*."""
    auth = _auth_of(request)
    known = auth.login(request, token)
    if known is None:
        msg = "that token is not known here"
        return refused(request, Problem(401, "unauthorized", msg))
    response = go(_own(back))
    set_cookie(request, response, COOKIE, auth.access.sessions.begin(known))
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    """End the session, also for copies of its cookie."""
    response, cookie = go("/login"), cookie_of(request)
    if cookie:
        _auth_of(request).logout(request, cookie)
        drop_cookie(request, response, COOKIE)
    return response


def _auth_of(request: Request) -> Auth:
    auth: Auth = request.app.state.auth
    return auth


def _own(path: str) -> str:
    """*path* if it leads to a page here, else the first page."""
    own = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if own and "\\" not in path else "/"
