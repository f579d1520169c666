"""Paging: cursors that walk long lists, and ETags by which a change names what its caller saw.

A change is made to the revision that the caller saw, or not at all (`If-Match`, RFC 9110).
"""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import read_cursor
from angzarr.dashboard.problem import Problem

#: The place of an entry in its job, as databases count.
_POSITION: Final = re.compile(r"[1-9][0-9]{0,8}")


def sealed(cursor: str) -> str:
    """*cursor* as callers see it; empty: there is no next page."""
    return base64.urlsafe_b64encode(cursor.encode()).decode().rstrip("=")


def cursor_after(shown: str) -> str:
    """The cursor that *shown* was made from; raises Problem 400 if it is none."""
    if not shown:
        return ""
    try:
        cursor = _text_of(shown)
        name = cursor.partition("~")[2]  # as we spell it, or it is none of ours
        is_cursor = group_address(read_cursor(cursor).entry_id) == name
    except (ValueError, OverflowError):
        is_cursor = False
    if not is_cursor:
        raise no_cursor()
    return cursor


def position_after(shown: str) -> int:
    """The position behind which the page of cursor *shown* begins; raises Problem 400."""
    if not shown:
        return 0
    try:
        is_position = _POSITION.fullmatch(_text_of(shown))
    except ValueError:
        is_position = None
    if not is_position:
        raise no_cursor()
    return int(is_position[0])


def text_after(shown: str) -> str:
    """The text behind which the page of cursor *shown* begins; raises Problem 400."""
    try:
        return _text_of(shown)
    except ValueError:
        raise no_cursor() from None


def _text_of(shown: str) -> str:
    """The text that was sealed; raises ValueError."""
    padded = shown.encode("ascii") + b"=" * (-len(shown) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True).decode()


def no_cursor() -> Problem:
    """The problem that `after` is no cursor of ours."""
    return Problem(400, "bad-cursor", "`after` is not the `next` of a page")


def next_query(request: Request, cursor: str) -> str:
    """The query of the next page, or an empty string where there is none."""
    if not cursor:
        return ""
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    return urlencode([*asked, ("after", sealed(cursor))])


def next_link(request: Request, cursor: str) -> dict[str, str]:
    """The header that leads to the next page (RFC 8288), if there is one."""
    query = next_query(request, cursor)
    return {"Link": f'<{request.url.path}?{query}>; rel="next"'} if query else {}


_TAG: Final = re.compile(r'"(\d{1,9})(?:-([0-9a-f]{16}))?"')


def tag_of(revision: int, mark: str = "") -> str:
    """The ETag of something at *revision*, told with all that *mark* stands for."""
    return f'"{revision}-{mark}"' if mark else f'"{revision}"'


def seen(if_match: str | None) -> int | None:
    """The revision that a caller saw; None: he does not say, or takes any."""
    return seen_with(if_match)[0]


def seen_with(if_match: str | None) -> tuple[int | None, str]:
    """The revision that a caller saw, and the mark of what was told with it."""
    if if_match is None or if_match.strip() == "*":
        return None, ""
    tag = _TAG.fullmatch(if_match.strip())
    if tag is None:
        raise Problem(400, "bad-if-match", 'If-Match is the ETag of what you saw, like "3"')
    return int(tag.group(1)), tag.group(2) or ""


def stale(what: str) -> Problem:
    """The problem that *what* was changed since its caller saw it."""
    return Problem(412, "stale", f"the {what} was changed meanwhile: look at it again")
