"""What a Celery app without us loses, whatever its settings are.

An app of ours has none of these: they are what its road is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.celery_rules import OURS
from angzarr.doctor.finding import Area, Check, Finding, Severity

_APP, _CRITICAL, _WARNING = Area.APP, Severity.CRITICAL, Severity.WARNING

NO_LETTERS: Final = Check(
    id="no-dead-letters",
    area=_APP,
    severity=_CRITICAL,
    looks_at="whether a failed task's message is kept anywhere",
    why="a task that fails for the last time is acknowledged and kept nowhere: its message is gone",
)
RETRY_DROPS: Final = Check(
    id="retry-drops",
    area=_APP,
    severity=_CRITICAL,
    looks_at="tasks with autoretry_for, and whether a task's code calls retry",
    why="Task.retry publishes a copy, and if the broker does not take that it rejects the message:"
    " gone",
)
POISON: Final = Check(
    id="poison-loops",
    area=_APP,
    severity=_WARNING,
    looks_at="task_reject_on_worker_lost without a count of starts",
    why="a message that kills its process comes back for ever and holds up all behind it",
)
TWICE: Final = Check(
    id="runs-twice",
    area=_APP,
    severity=_WARNING,
    looks_at="task_acks_late without claims",
    why="a message that comes again, as late acknowledgement makes it, has its effects twice",
)
HELD_IN_MEMORY: Final = Check(
    id="delays-in-memory",
    area=_APP,
    severity=_WARNING,
    looks_at="how the broker holds countdown, eta and retries; worker_eta_task_limit",
    why="delayed messages lie in the memory of a worker, beyond its prefetch limit, until it runs"
    " out of memory",
)
NO_GRACE: Final = Check(
    id="no-soft-shutdown",
    area=_APP,
    severity=_WARNING,
    looks_at="worker_soft_shutdown_timeout",
    why="SIGTERM waits for every running task however long, until Kubernetes kills the worker amid"
    " them",
)
UNROUTABLE: Final = Check(
    id="unroutable-dropped",
    area=_APP,
    severity=_WARNING,
    looks_at="whether publishes are mandatory (RabbitMQ)",
    why="a message that no queue is bound for is confirmed and dropped",
)
CHECKS: Final = (NO_LETTERS, RETRY_DROPS, POISON, TWICE, HELD_IN_MEMORY, NO_GRACE, UNROUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSeen:
    """A Celery app that is not ours."""

    at: str
    #: As in `CelerySeen`.
    transport: str
    #: Tasks with automatic retries, or whose code names ``retry``.
    retrying: Sequence[str] = ()
    acks_late: bool = False
    reject_on_worker_lost: bool = False
    #: Whether failures are rejected, and every queue of the app has a dead-letter exchange.
    dead_letter_exchange: bool = False
    #: Whether RabbitMQ itself holds delays: quorum queues behind exchanges that are not direct.
    native_delays: bool = False
    #: None: a worker takes as many as there are.
    eta_limit: int | None = None
    #: Seconds; 0: there is none.
    soft_shutdown: float = 0.0


def findings(seen: StockSeen) -> Iterator[Finding]:
    """Return what the app loses for want of a road."""
    if not seen.dead_letter_exchange:
        yield NO_LETTERS.found(seen.at, "no queue takes what failed", OURS)
    if seen.retrying:
        named = ", ".join(sorted(seen.retrying)[:5])
        yield RETRY_DROPS.found(f"{seen.at}, tasks {named}", "they retry by Task.retry", OURS)
    if seen.reject_on_worker_lost:
        yield POISON.found(
            seen.at,
            "starts are not counted",
            f"{OURS}; or on RabbitMQ use quorum queues with x-delivery-limit and a dead-letter"
            " exchange",
        )
    if seen.acks_late:
        yield TWICE.found(seen.at, "nothing remembers what was handled", OURS)
    if not seen.native_delays and seen.eta_limit is None:
        yield HELD_IN_MEMORY.found(
            seen.at,
            "delays are held by workers, without a limit",
            f"{OURS}; or set worker_eta_task_limit = 1000",
        )
    if not seen.soft_shutdown:
        yield NO_GRACE.found(
            seen.at,
            "worker_soft_shutdown_timeout = 0",
            "set worker_soft_shutdown_timeout = 7.5 and, in the worker's environment,"
            " REMAP_SIGTERM=SIGQUIT",
        )
    if seen.transport == "amqp":
        yield UNROUTABLE.found(
            seen.at, "publishes are not mandatory", f"{OURS}; or pass mandatory=True to each"
        )
