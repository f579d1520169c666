"""How steps ended: kept with the move of their lane, for a day (ADR 0092)."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, delete, select, tuple_

from angzarr.adapters.sql.ordering.tables import ordering_ends
from angzarr.ordering.lane import SkipCause, Step, StepEnd

_here = ordering_ends.c
_QUARTER: Final = 15 * 60

#: Column → the parameter with its value.
ENDED: Final = {name: bindparam(f"e_{name}", type_=_here[name].type) for name in _here.keys()}  # noqa: SIM118 - no dict
#: Keeps no end of a step without a token.
HAS_TOKEN: Final[Any] = ENDED["token"] != ""


def ended_row(step: Step) -> dict[str, Any]:
    """The parameters with which the end of *step* is kept."""
    row = {
        "quarter": _quarter(step.at),
        "step": _digest(step),
        "token": step.token,
        "at": step.at,
        "skipped": None if step.skipped is None else json.dumps(step.skipped),
    }
    return {ENDED[name].key: value for name, value in row.items()}


def kept(statement: Any) -> Any:
    """Let the INSERT *statement* replace an end of the same step: it was handled anew since."""
    new = statement.excluded
    keys = [_here.quarter, _here.step]
    values = {name: new[name] for name in ("token", "at", "skipped")}
    return statement.on_conflict_do_update(index_elements=keys, set_=values)


def end_of(connection: Connection, step: Step, since: datetime) -> StepEnd | None:
    """The last end of the event of *step*, *since* then."""
    quarters = range(_quarter(since), _quarter(step.at) + 2)  # clocks may differ a little
    same = [_here.quarter.in_(quarters), _here.step == _digest(step), _here.at >= since]
    last = select(ordering_ends).where(*same).order_by(_here.at.desc()).limit(1)
    row = connection.execute(last).first()
    if row is None:
        return None
    skipped = None if row.skipped is None else SkipCause(*json.loads(row.skipped))
    return StepEnd(row.token, row.at, skipped)


def forget(connection: Connection, before: datetime, limit: int) -> int:
    """Delete at most *limit* of the ends before the quarter of *before*, the oldest first."""
    keys = [_here.quarter, _here.step]
    old: Select[Any] = (
        select(*keys).where(_here.quarter < _quarter(before)).order_by(*keys).limit(limit)
    )
    return connection.execute(delete(ordering_ends).where(tuple_(*keys).in_(old))).rowcount


def _quarter(at: datetime) -> int:
    return int(at.timestamp()) // _QUARTER


def _digest(step: Step) -> int:
    """A number of 64 bits with a sign, as databases have them."""
    named = json.dumps([step.lane.handler, *step.lane.address, step.sequence, step.event_id])
    digest = hashlib.blake2b(named.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
