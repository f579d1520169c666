"""Revision: a change is made to what its caller saw, or not at all (`If-Match`, RFC 9110)."""

from __future__ import annotations

import re
from typing import Final

from angzarr.dashboard.problem import Problem

_TAG: Final = re.compile(r'"(\d{1,9})(?:-([0-9a-f]{16}))?"')


def tag_of(revision: int, mark: str = "") -> str:
    """Return the ETag of something at *revision*, told with all that *mark* stands for."""
    return f'"{revision}-{mark}"' if mark else f'"{revision}"'


def seen(if_match: str | None) -> int | None:
    """Return the revision that a caller saw; None: he does not say, or takes any."""
    return seen_with(if_match)[0]


def seen_with(if_match: str | None) -> tuple[int | None, str]:
    """Return the revision that a caller saw, and the mark of what was told with it."""
    if if_match is None or if_match.strip() == "*":
        return None, ""
    tag = _TAG.fullmatch(if_match.strip())
    if tag is None:
        raise Problem(400, "bad-if-match", 'If-Match is the ETag of what you saw, like "3"')
    return int(tag.group(1)), tag.group(2) or ""


def stale(what: str) -> Problem:
    """Return that *what* was changed since its caller saw it."""
    return Problem(412, "stale", f"the {what} was changed meanwhile: look at it again")
