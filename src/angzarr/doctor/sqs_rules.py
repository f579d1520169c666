"""What an SQS broker loses: messages that grow too old, and what it moves elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Fix, Severity
from angzarr.doctor.rabbitmq_rules import MISSING

#: The fix: creates a task queue.
CREATE_QUEUE: Final = "sqs-create-queue"
#: Shorter than a long weekend and its outage.
_SHORT: Final = timedelta(days=4)
_LONGEST: Final = timedelta(days=14)

RETENTION: Final = Check(
    id="sqs-retention",
    area=Area.SQS,
    severity=Severity.WARNING,
    looks_at="MessageRetentionPeriod of the task queues",
    why="SQS deletes a message that nobody took for so long: an outage that lasts longer loses it",
)
MOVES: Final = Check(
    id="sqs-redrive",
    area=Area.SQS,
    severity=Severity.WARNING,
    looks_at="RedrivePolicy of the task queues",
    why="SQS moves a message to another queue after some receives, be it poison or only prefetched"
    " by workers that died",
)
REJECTS: Final = Check(
    id="sqs-rejects-delete",
    area=Area.SQS,
    severity=Severity.CRITICAL,
    looks_at="RedrivePolicy of the task queues of an app that is not ours",
    why="what Celery rejects is deleted from a queue without a redrive policy: it is gone",
)
CHECKS: Final = (RETENTION, MOVES, REJECTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsQueueSeen:
    """A task queue of an SQS broker."""

    at: str
    name: str
    ours: bool = True
    exists: bool = True
    retention: timedelta | None = None
    #: Where its redrive policy leads, in words; empty: it has none.
    moving: str = ""


def findings(queues: Sequence[SqsQueueSeen]) -> Iterator[Finding]:
    """Return what is wrong with the task queues of an SQS broker."""
    for queue in queues:
        at = f"{queue.at}, queue {queue.name}"
        if queue.exists:
            yield from _queue(queue, at)
        else:
            yield MISSING.found(
                at,
                "it does not exist",
                f"aws sqs create-queue --queue-name {queue.name} --attributes"
                f" MessageRetentionPeriod={_LONGEST.total_seconds():.0f}",
                fix=Fix(
                    kind=CREATE_QUEUE,
                    at=queue.at,
                    what=f"create the queue {queue.name} on {queue.at}",
                    arguments=(queue.name,),
                ),
            )


def _queue(queue: SqsQueueSeen, at: str) -> Iterator[Finding]:
    kept = queue.retention
    if kept is not None and kept < _LONGEST:
        yield RETENTION.found(
            at,
            f"MessageRetentionPeriod {kept.total_seconds():.0f} s",
            "aws sqs set-queue-attributes --queue-url … --attributes"
            " MessageRetentionPeriod=1209600",
            severity=Severity.WARNING if kept < _SHORT else Severity.INFO,
        )
    if queue.moving and queue.ours:
        yield MOVES.found(
            at, queue.moving, "remove its redrive policy: starts are counted, and end as letters"
        )
    if not queue.moving and not queue.ours:
        yield REJECTS.found(at, "no RedrivePolicy", "give it a redrive policy to its own queue")
