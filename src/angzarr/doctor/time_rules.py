"""How long things take against how long a broker, a pod or a clock waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity

#: What RabbitMQ does unless it is told otherwise (consumer_timeout).
CONSUMER_TIMEOUT: Final = timedelta(minutes=30)
#: A worker of ours ends at most so long after its soft time-out.
AFTER_GRACE: Final = timedelta(seconds=2.5)

VISIBILITY: Final = Check(
    id="visibility-timeout",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="visibility_timeout against time limits, and against delays that workers hold",
    why="a message that is held longer is delivered again while it is still held, and again after"
    " that",
)
CONSUMER: Final = Check(
    id="consumer-timeout",
    area=Area.RABBITMQ,
    severity=Severity.ERROR,
    looks_at="consumer_timeout (30 min) against time limits, and against delays that workers hold",
    why="RabbitMQ closes the channel of who holds a message longer, and all that it held comes"
    " again",
)
GRACE: Final = Check(
    id="grace-period",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="--grace (terminationGracePeriodSeconds) against worker_soft_shutdown_timeout",
    why="Kubernetes kills the worker before it has given back what it holds: that comes again only"
    " when its lease or its visibility time-out ends",
)
GRACE_VISIBLE: Final = Check(
    id="grace-beyond-visibility",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="--grace against visibility_timeout",
    why="a message becomes visible to others while the worker that stops may still run it",
)
CHECKS: Final = (VISIBILITY, CONSUMER, GRACE, GRACE_VISIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesSeen:
    """Spans of a set-up; None is unknown, or none."""

    at: str
    #: After what a broker hands a message out again that nobody let go; None: it does not.
    visibility: timedelta | None = None
    #: The longest that this can be set to; None: any time.
    most_visibility: timedelta | None = None
    #: Whether RabbitMQ is the broker.
    consumer_timeout: timedelta | None = None
    #: The longest hard time limit; None: some task has none.
    longest_run: timedelta | None = None
    #: The longest delay that a worker holds in hand, as far as it is known.
    longest_delay: timedelta | None = None
    soft_shutdown: timedelta = timedelta(0)
    #: How long a pod may take to end.
    grace: timedelta | None = None


def findings(seen: TimesSeen) -> Iterator[Finding]:
    """Return what takes longer than somebody waits for it."""
    if seen.visibility is not None:
        yield from _visibility(seen, seen.visibility)
    if seen.consumer_timeout is not None:
        yield from _consumer(seen, seen.consumer_timeout)
    if seen.grace is not None:
        yield from _grace(seen, seen.grace)


def _visibility(seen: TimesSeen, visible: timedelta) -> Iterator[Finding]:
    for what, span in (("delay", seen.longest_delay), ("time limit", seen.longest_run)):
        if span is not None and span >= visible:
            yield VISIBILITY.found(
                seen.at,
                f"visibility_timeout {_said(visible)}, the longest {what} {_said(span)}",
                _longer(what, span, seen.most_visibility),
            )
    if seen.longest_run is None:
        yield VISIBILITY.found(
            seen.at,
            f"visibility_timeout {_said(visible)}, and tasks without a time limit",
            "set task_time_limit below it, or a visibility_timeout beyond the longest task",
            severity=Severity.WARNING,
        )


def _longer(what: str, span: timedelta, most: timedelta | None) -> str:
    if most is not None and span >= most:
        return f"make the {what} shorter: {_said(most)} is the most that the broker waits"
    seconds = round(min(span * 2, most or timedelta.max).total_seconds())
    return (
        f"set broker_transport_options = {{'visibility_timeout': {seconds}}}, on all workers alike"
    )


def _consumer(seen: TimesSeen, patience: timedelta) -> Iterator[Finding]:
    for what, span in (("delay", seen.longest_delay), ("time limit", seen.longest_run)):
        if span is not None and span >= patience:
            yield CONSUMER.found(
                seen.at,
                f"consumer_timeout {_said(patience)}, the longest {what} {_said(span)}",
                f"set consumer_timeout = {round(span.total_seconds() * 2000)} in rabbitmq.conf, or"
                " x-consumer-timeout on the queue",
            )
    if seen.longest_run is None:
        yield CONSUMER.unknown(
            seen.at,
            "tasks without a time limit; RabbitMQ does not tell its consumer_timeout",
            "see that no task runs longer than `rabbitmqctl environment | grep consumer_timeout`"
            " (30 min by default), e.g. by task_time_limit",
        )


def _grace(seen: TimesSeen, grace: timedelta) -> Iterator[Finding]:
    least = seen.soft_shutdown + AFTER_GRACE
    if grace <= least:
        yield GRACE.found(
            seen.at,
            f"grace {_said(grace)}, and a worker needs up to {_said(least)}",
            f"set terminationGracePeriodSeconds above {_said(least)} plus preStop, or"
            " soft_shutdown_timeout lower",
        )
    if seen.visibility is not None and grace >= seen.visibility:
        yield GRACE_VISIBLE.found(
            seen.at,
            f"grace {_said(grace)}, visibility_timeout {_said(seen.visibility)}",
            "set visibility_timeout above terminationGracePeriodSeconds",
        )


def _said(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
