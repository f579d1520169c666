"""Text for people: printable forms of what came from outside, spans of time, misspelt names.

Printable text is text that neither a terminal nor a log acts on.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final


def printable(value: object, *, keep: str = "") -> str:
    """*value* as one line without control characters; those in *keep* stay."""
    text = str(value)
    if text.isprintable():  # nearly every text, and quickly seen
        return text
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in text)


def escaped(text: str) -> str:
    """JSON whose characters all show: those that do not are spelt as JSON spells them."""
    if text.isprintable():
        return text
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in plain)


#: From here on hours say more than a person wants to know.
_DAYS: Final = timedelta(days=2)


def ago(at: datetime | None, now: datetime) -> str:
    """How long before *now* something was; empty: it was not."""
    return "" if at is None else f"{span_text(max(now - at, timedelta(0)))} ago"


def span_text(span: timedelta) -> str:
    """*span* in its two largest units."""
    if span >= _DAYS:
        return f"{span.days} d"
    seconds = round(span.total_seconds())
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"


#: How alike two names must be, from 0 to 1, for one to be taken for the other misspelt.
_ALIKE: Final = 0.75


def unknown(what: str, name: str, known: Iterable[str], cure: str, within: str = "") -> str:
    """The sentence that refuses *name*: with the nearest of *known*, or else the *cure*.

    *within* comes before each of these names.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=_ALIKE)
    if near:
        return f'unknown {what} "{within}{name}"; did you mean "{within}{near[0]}"?'
    return f'unknown {what} "{within}{name}": {cure}'
