"""Paging: cursors that say nothing to whoever holds them, and the link to the next page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from angzarr.dashboard.problem import Problem

P = TypeVar("P")


def sealed(cursor: str) -> str:
    """Return *cursor* as callers see it; empty: there is no next page."""
    return base64.urlsafe_b64encode(cursor.encode()).decode().rstrip("=")


def unsealed(shown: str) -> str:
    """Return the cursor that *shown* was made from; raises Problem 400 if it is none."""
    try:
        padded = shown.encode("ascii") + b"=" * (-len(shown) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise _no_cursor() from None


def page_after(shown: str, read: Callable[[str], P]) -> P:
    """Return the page that *read* gives behind the cursor *shown*."""
    after = unsealed(shown)
    try:
        return read(after)
    except ValueError:
        raise _no_cursor() from None


def next_query(request: Request, cursor: str) -> str:
    """Return the query of the next page, or an empty string where there is none."""
    if not cursor:
        return ""
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    return urlencode([*asked, ("after", sealed(cursor))])


def next_link(request: Request, cursor: str) -> dict[str, str]:
    """Return the header that leads to the next page (RFC 8288), if there is one."""
    query = next_query(request, cursor)
    return {"Link": f'<{request.url.path}?{query}>; rel="next"'} if query else {}


def _no_cursor() -> Problem:
    return Problem(400, "bad-cursor", "`after` is no cursor that a page here named as its next")
