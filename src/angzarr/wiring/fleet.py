"""Fleet wiring: what a worker tells its fleet of itself, and where."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from angzarr.adapters.celery.worker.owner_lease import Membership
from angzarr.clock import SystemClock
from angzarr.delivery.handlers import Handlers
from angzarr.fleet import Member

if TYPE_CHECKING:
    from angzarr.wiring.process import ProcessParts


def release() -> str:
    """The version of the user's code that this process runs; empty if it is not set.

    Letters and the fleet have it from here, so that the two can be compared.
    """
    said = os.environ.get("ANGZARR_RELEASE", "")
    return said.encode("utf-8", "replace").decode()  # it may hold bytes that no store takes


def membership(parts: ProcessParts, owner: str, pool: str) -> Membership:
    """The membership that keeps the worker *owner* on the register, beside its claims."""
    host, pid, began = socket.gethostname(), os.getpid(), SystemClock().now()

    def look() -> Member:
        return Member(
            owner=owner,
            host=host,
            pid=pid,
            release=release(),
            handlers=tuple(sorted(_names(parts.context.handlers))),
            queues=tuple(sorted(map(str, parts.celery.amqp.queues.consume_from))),
            pool=pool,
            started_at=began,
        )

    return Membership(parts.claims.fleet, look)


def _names(handlers: Handlers) -> Iterator[str]:
    """The names of the tasks that can run here; every Celery app has Celery's own tasks."""
    return (one.name for one in handlers if not one.name.startswith("celery."))
