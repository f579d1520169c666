"""Examination: what SQS tells of task queues and of queues of dead letters, for the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from angzarr.adapters.sqs.client import FAILURES, Service, is_gone
from angzarr.adapters.sqs.queue_check import RETENTION, moving, weaknesses
from angzarr.adapters.sqs.queues import FIFO_SUFFIX, Queues
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import NAME_PREFIX
from angzarr.doctor.letter_rules import LetterQueueSeen
from angzarr.doctor.sqs_rules import SqsQueueSeen

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

__all__ = ["FAILURES", "letter_queues", "make_letter_queue", "make_task_queue", "task_queues"]
_ASKED: Final[Any] = ("MessageRetentionPeriod", "RedrivePolicy", "ApproximateNumberOfMessages")


def task_queues(
    service: Service, at: str, names: Sequence[str], *, ours: bool
) -> list[SqsQueueSeen]:
    """Return the task queues *names* as SQS has them; raises what boto3 raises."""
    client = service.connect("sqs")
    return [_task_queue(client, at, name, ours=ours) for name in names]


def make_task_queue(service: Service, name: str) -> None:
    """Make a task queue that keeps messages as long as SQS can; raises what boto3 raises."""
    client: SQSClient = service.connect("sqs")
    client.create_queue(QueueName=name, Attributes={"MessageRetentionPeriod": str(RETENTION)})


def letter_queues(
    service: Service, domains: Sequence[str], *, fifo: bool, create_missing: bool
) -> list[LetterQueueSeen]:
    """Return the queues of *domains*, and others that hold letters; raises what boto3 raises."""
    client: SQSClient = service.connect("sqs")
    suffix = FIFO_SUFFIX if fifo else ""
    names = {queue_name(domain, suffix): domain for domain in domains}
    seen = []
    for name, domain in names.items():
        given = _attributes(client, name)
        seen.append(
            LetterQueueSeen(
                domain=domain,
                name=name,
                exists=given is not None,
                made_when_missing=create_missing,
                weak=weaknesses(given or {}),
                waiting=_waiting(given),
            )
        )
    return [*seen, *_others(client, names.keys())]


def make_letter_queue(service: Service, domain: str, *, fifo: bool) -> str:
    """Make the queue of *domain*; raises what boto3 raises."""
    queues = Queues(service, fifo=fifo, create_missing=True)
    try:
        queues.url(domain)
    finally:
        queues.close()
    return ""


def _others(client: SQSClient, known: Any) -> list[LetterQueueSeen]:
    """Return queues of letters that are not *known* and hold some; the first thousand."""
    try:
        urls = client.list_queues(QueueNamePrefix=NAME_PREFIX, MaxResults=1000).get("QueueUrls", [])
    except FAILURES:  # no right to list
        return []
    others = []
    for url in urls:
        name = url.rpartition("/")[2]
        if name not in known:
            domain = name.removeprefix(NAME_PREFIX).removesuffix(FIFO_SUFFIX)
            waiting = _waiting(_attributes(client, name))
            others.append(LetterQueueSeen(domain=domain, name=name, waiting=waiting, read=False))
    return others


def _task_queue(client: SQSClient, at: str, name: str, *, ours: bool) -> SqsQueueSeen:
    given = _attributes(client, name)
    if given is None:
        return SqsQueueSeen(at=at, name=name, ours=ours, exists=False)
    kept, redrive = given.get("MessageRetentionPeriod", ""), given.get("RedrivePolicy", "")
    return SqsQueueSeen(
        at=at,
        name=name,
        ours=ours,
        retention=timedelta(seconds=int(kept)) if kept.isdecimal() else None,
        moving=moving(redrive) if redrive else "",
    )


def _attributes(client: SQSClient, name: str) -> dict[str, str] | None:
    """Return what SQS says of a queue; None where there is no such one."""
    try:
        url = client.get_queue_url(QueueName=name)["QueueUrl"]
        reply: Any = client.get_queue_attributes(QueueUrl=url, AttributeNames=_ASKED)
    except FAILURES as error:
        if is_gone(error):
            return None
        raise
    return dict(reply.get("Attributes", {}))


def _waiting(given: dict[str, str] | None) -> int:
    return int((given or {}).get("ApproximateNumberOfMessages", "0"))
