"""Pages of cases: a part of the log at a time, and the cursor that leads to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from angzarr.events.headers import time_of
from angzarr.sagas.log import Case, RejectionLog, Wanted


class Page(NamedTuple):
    """Cases, and the cursor of the next page, if there is one."""

    cases: Sequence[Case]
    next: str = ""


def page_of(log: RejectionLog, wanted: Wanted, *, limit: int, after: str) -> Page:
    """Return a page of cases behind the cursor *after*.

    Raises ValueError for a cursor that is none, and StoreUnavailable.
    """
    found = log.cases(wanted, limit=limit + 1, before=_place(after) if after else None)
    cases = found[:limit]
    more = f"{cases[-1].rejected_at.isoformat()},{cases[-1].id}" if len(found) > limit else ""
    return Page(cases, more)


def _place(cursor: str) -> tuple[datetime, str]:
    at, _, id_ = cursor.partition(",")
    place = time_of(at)
    if place is None or datetime.fromisoformat(at).tzinfo is None or not id_:
        msg = f"{cursor!r} is not a cursor of a page"
        raise ValueError(msg)
    return place, id_
