"""Whether a Celery worker has enough to do, so that what it tells a server may be gathered."""

from __future__ import annotations

import sys

#: Tasks that must wait where there is no prefetch limit, and the fewest where there is one.
ENOUGH, FEWEST = 8, 2


def has_backlog(limit: int) -> bool:
    """True if half of the prefetch *limit* waits for a slot in this process's worker.

    Then no slot of the pool becomes idle while a step waits for more to say. Celery's own account
    is read where a worker has loaded it; elsewhere nothing is ever waited for.
    """
    state = sys.modules.get("celery.worker.state")
    if state is None:
        return False
    waiting = len(state.reserved_requests) - len(state.active_requests)
    return waiting >= (max(limit / 2, FEWEST) if limit else ENOUGH)
