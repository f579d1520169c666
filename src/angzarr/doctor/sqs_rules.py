"""What an SQS broker loses: messages that grow too old, and what it moves elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    why="SQS deletes a message that waited so long: an outage that lasts longer loses it",
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
VISIBILITY: Final = Check(
    id="sqs-visibility",
    area=Area.SQS,
    severity=Severity.ERROR,
    looks_at="VisibilityTimeout of the task queues against visibility_timeout",
    why="the queue decides how long a worker has a message to itself, and the setting only for a"
    " queue that is made anew: a task that runs longer runs twice",
)
CHECKS: Final = (RETENTION, MOVES, REJECTS, VISIBILITY)
_SET: Final = "aws sqs set-queue-attributes --queue-url … --attributes"
_REDRIVE: Final = (
    '{"RedrivePolicy": "{\\"deadLetterTargetArn\\": \\"arn:aws:sqs:…\\",'
    ' \\"maxReceiveCount\\": \\"5\\"}"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsQueueSeen:
    """A task queue of an SQS broker."""

    at: str
    name: str
    ours: bool = True
    exists: bool = True
    #: What it is to be made with, by the names of SQS; nothing: this app never makes it.
    made_with: Mapping[str, str] = field(default_factory=dict)
    retention: timedelta | None = None
    #: How long it leaves a message to a worker, and how long the app's setting says.
    visibility: timedelta | None = None
    wanted_visibility: timedelta | None = None
    #: Where its redrive policy leads, in words; empty: it has none.
    moving: str = ""


def findings(queues: Sequence[SqsQueueSeen]) -> Iterator[Finding]:
    """The findings about the task queues of an SQS broker."""
    for queue in queues:
        at = f"{queue.at}, queue {queue.name}"
        if queue.exists:
            yield from _queue(queue, at)
        else:
            yield _missing(queue, at)


def _missing(queue: SqsQueueSeen, at: str) -> Finding:
    if not queue.made_with:
        change = "create it, or fix its url in predefined_queues"
        return MISSING.found(at, "it does not exist", change)
    attributes = ",".join(f"{name}={value}" for name, value in queue.made_with.items())
    return MISSING.found(
        at,
        "it does not exist",
        f"aws sqs create-queue --queue-name {queue.name} --attributes {shlex.quote(attributes)}",
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
            f"{_SET} MessageRetentionPeriod=1209600",
            severity=Severity.WARNING if kept < _SHORT else Severity.INFO,
        )
    if queue.moving and queue.ours:
        yield MOVES.found(
            at, queue.moving, "remove its redrive policy: starts are counted, and end as letters"
        )
    if not queue.moving and not queue.ours:
        yield REJECTS.found(at, "no RedrivePolicy", f"{_SET} {shlex.quote(_REDRIVE)}")
    yield from _visibility(queue, at)


def _visibility(queue: SqsQueueSeen, at: str) -> Iterator[Finding]:
    given, wanted = queue.visibility, queue.wanted_visibility
    if given is not None and wanted is not None and given < wanted:
        wanted_seconds = f"{wanted.total_seconds():.0f}"
        yield VISIBILITY.found(
            at,
            f"VisibilityTimeout {given.total_seconds():.0f} s, visibility_timeout"
            f" {wanted_seconds} s",
            f"{_SET} VisibilityTimeout={wanted_seconds}",
        )
