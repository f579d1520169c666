"""What RabbitMQ's own delays lose: queues that lead nowhere, or hand on without a confirm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Fix, Severity

#: The fix: declares the queues as a worker does.
DECLARE_DELAYS: Final = "rabbitmq-declare-delays"
#: How RabbitMQ's management interface is named to the doctor.
MANAGEMENT: Final = "--management http://user:password@host:15672"
_RABBITMQ, _CRITICAL, _ERROR = Area.RABBITMQ, Severity.CRITICAL, Severity.ERROR

NO_DELAYS: Final = Check(
    id="delay-queues-missing",
    area=_RABBITMQ,
    severity=_ERROR,
    looks_at="the queues celery_delayed_0 to 27, where the app uses RabbitMQ's own delays",
    why="an app declares them when it first uses them, if none is there; where some are missing, or"
    " a plain Celery app sends, a delayed message is refused or gets stuck",
    fixable=True,
)
WEAK_DELAYS: Final = Check(
    id="delay-queues-weak",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="types and arguments of celery_delayed_0 to 27",
    why="a delayed message is handed on without a confirm, and can vanish between two queues",
)
ORPHANED: Final = Check(
    id="delay-queues-orphaned",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="messages in celery_delayed_0 to 27, and who is bound to celery_delayed_delivery",
    why="a delayed message whose time comes is for no queue: RabbitMQ drops it",
)
CHECKS: Final = (NO_DELAYS, WEAK_DELAYS, ORPHANED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysSeen:
    """The queues in which RabbitMQ itself holds delayed messages."""

    #: Whether the app sends messages there.
    used: bool = False
    missing: Sequence[str] = ()
    #: How one of them differs from what it takes to lose nothing.
    weak: str = ""
    messages: int = 0
    #: Queues that are bound to the end of the chain; None: that could not be seen.
    bound: int | None = None


def findings(server: str, delays: DelaysSeen) -> Iterator[Finding]:
    """Return what is wrong with the delay queues of *server*."""
    at = f"{server}, celery_delayed_*"
    if delays.used and delays.missing:
        yield NO_DELAYS.found(
            at,
            f"{len(delays.missing)} of 28 queues do not exist",
            "start a worker, which declares them",
            fix=Fix(
                kind=DECLARE_DELAYS,
                at=server,
                what=f"declare RabbitMQ's delay queues on {server}, as a worker does",
            ),
        )
    if delays.weak and (delays.used or delays.messages):
        yield WEAK_DELAYS.found(
            at,
            delays.weak,
            "set broker_native_delayed_delivery_queue_type to 'quorum', let them run empty and"
            " delete celery_delayed_0 to celery_delayed_27",
        )
    if not delays.messages:
        return
    if delays.bound == 0:
        yield ORPHANED.found(
            at,
            f"{delays.messages} messages wait, and no queue is bound to celery_delayed_delivery",
            "start the workers whose queues they are for before their time comes: they bind them",
        )
    elif delays.bound is None and not delays.used:
        yield ORPHANED.unknown(
            at,
            f"{delays.messages} messages wait, and this app does not use these queues",
            f"see that another app does (or name {MANAGEMENT}): rabbitmqctl list_bindings | grep"
            " celery_delayed_delivery",
        )
