"""Fleet wiring: what a worker tells its fleet of itself, and where."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from angzarr.adapters.celery.worker.owner_lease import Membership
from angzarr.clock import SystemClock
from angzarr.fleet import Member


def release() -> str:
    """Return the version of the user's code that this process runs; empty: nobody said it.

    Letters and the fleet have it from here, so that the two can be compared.
    """
    said = os.environ.get("ANGZARR_RELEASE", "")
    return said.encode("utf-8", "replace").decode()  # it may hold bytes that no store takes


def membership(app: Any, pool: str) -> Membership:
    """Return what keeps this worker of *app* on the register, beside its claims."""
    # Its name is asked for now: an app makes a new one for its next worker.
    owner, host, pid, began = app.owner, socket.gethostname(), os.getpid(), SystemClock().now()

    def look() -> Member:
        return Member(
            owner=owner,
            host=host,
            pid=pid,
            release=release(),
            handlers=tuple(sorted(_names(app))),
            queues=tuple(sorted(map(str, app.amqp.queues.consume_from))),
            pool=pool,
            started_at=began,
        )

    return Membership(app.claims.fleet, look)


def _names(app: Any) -> Iterator[str]:
    """Return what can run here; every Celery app has Celery's own tasks."""
    return (one.name for one in app.handlers if not one.name.startswith("celery."))
