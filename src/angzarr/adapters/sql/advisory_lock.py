"""Advisory locks of PostgreSQL, asked for again and again: no statement waits for one.

A statement that waits ends at its time-out, and is one that an index which is built meanwhile
waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, func, select

#: Seconds from one look to the next.
_LOOK: Final = 0.05


def takes_lock(
    connection: Connection,
    lock: int,
    patience: float,
    between: Callable[[], object] = lambda: None,
) -> bool:
    """Tell whether the transaction has *lock* until its end; asks for up to *patience* seconds.

    *between* is done after each look that found it taken.
    """
    until = time.monotonic() + patience
    while not connection.scalar(select(func.pg_try_advisory_xact_lock(lock))):
        if time.monotonic() > until:
            return False
        between()
        time.sleep(_LOOK)
    return True
