"""Reads task queues and dead-letter queues of SQS for the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from kombu.transport.SQS import Channel

from angzarr.adapters.sqs import fan_out
from angzarr.adapters.sqs.client import FAILURES, Client, Service, is_gone
from angzarr.adapters.sqs.fan_out import FanOut
from angzarr.adapters.sqs.queues import FIFO_SUFFIX, RETENTION, SqsQueues, moving, weaknesses
from angzarr.adapters.sqs.topics import Subscriptions
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import NAME_PREFIX
from angzarr.doctor.letter_rules import LetterQueueSeen
from angzarr.doctor.sqs_rules import SqsQueueSeen
from angzarr.errors import DeadLetterQueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class WantedTaskQueue(NamedTuple):
    """A task queue as kombu's transport uses it."""

    name: str
    #: What it would be made with; nothing: it is one of ``predefined_queues``.
    made_with: Mapping[str, str]
    #: Its address where that is given and not asked for.
    url: str = ""


def wanted(
    names: Iterable[str], options: Mapping[str, Any], visibility: timedelta
) -> list[WantedTaskQueue]:
    """The task queues *names* under kombu's transport *options*."""
    predefined = options.get("predefined_queues") or {}
    return [_wanted(name, predefined, options, visibility) for name in names]


def _wanted(
    name: str, predefined: Mapping[str, Any], options: Mapping[str, Any], visibility: timedelta
) -> WantedTaskQueue:
    called = Channel.entity_name(None, f"{options.get('queue_name_prefix', '')}{name}")
    if predefined:
        return WantedTaskQueue(called, {}, str(predefined.get(called, {}).get("url", "")))
    made_with = {
        "MessageRetentionPeriod": str(RETENTION),
        "VisibilityTimeout": f"{visibility.total_seconds():.0f}",
        **({"FifoQueue": "true"} if called.endswith(FIFO_SUFFIX) else {}),
        **(options.get("sqs-creation-attributes") or {}),
    }
    return WantedTaskQueue(called, made_with)


def region_of(options: Mapping[str, Any]) -> str:
    """The region that kombu's transport would use."""
    found = options.get("region") or boto3.Session().region_name or Channel.default_region
    return str(found)


def task_queues(
    service: Service,
    at: str,
    queues: Sequence[WantedTaskQueue],
    *,
    ours: bool,
    visibility: timedelta,
) -> list[SqsQueueSeen]:
    """The task *queues* as SQS has them; raises what boto3 raises."""
    client = service.connect("sqs")
    return [
        replace(_task_queue(client, at, one, ours=ours), wanted_visibility=visibility)
        for one in queues
    ]


def make_task_queue(service: Service, queue: WantedTaskQueue) -> None:
    """Make a task queue as a worker does, but to keep messages as long as SQS can."""
    client: SQSClient = service.connect("sqs")
    attributes: Any = dict(queue.made_with)
    client.create_queue(QueueName=queue.name, Attributes=attributes)


def letter_queues(
    service: Service, domains: Sequence[str], *, fifo: bool, create_missing: bool, topics: bool
) -> list[LetterQueueSeen]:
    """The queues of *domains*, and others that hold letters; raises what boto3 raises.

    *topics*: letters come to them by topics of SNS, which are looked at too.
    """
    client: SQSClient = service.connect("sqs")
    suffix = FIFO_SUFFIX if fifo else ""
    names = {queue_name(domain, suffix): domain for domain in domains}
    seen = []
    for name, domain in names.items():
        given = _attributes(client, name)
        one = LetterQueueSeen(
            domain=domain,
            name=name,
            exists=given is not None,
            made_when_missing=create_missing,
            weak=weaknesses(given or {}),
            waiting=_waiting(given),
        )
        seen.append(_with_topic(service, one, given) if topics and given is not None else one)
    return [*seen, *_others(client, names.keys())]


def make_letter_queue(service: Service, domain: str, *, fifo: bool) -> str:
    """Make the queue of *domain*; raises what boto3 raises."""
    queues = SqsQueues(service, fifo=fifo, create_missing=True)
    try:
        queues.url(domain)
    finally:
        queues.close()
    return ""


def _with_topic(
    service: Service, seen: LetterQueueSeen, queue: Mapping[str, str]
) -> LetterQueueSeen:
    """*seen* of *queue* with what the topic before it lacks; makes none of it."""
    sns = Client(service, "sns")
    arn = fan_out.topic_beside(queue["QueueArn"])
    try:
        topic = sns.get().get_topic_attributes(TopicArn=arn)["Attributes"]
        subscriptions = Subscriptions(sns, create_missing=False)
        subscription = subscriptions.find(seen.name, arn, queue["QueueArn"]).attributes
    except DeadLetterQueueUnavailable:
        return replace(seen, lacks="it is not subscribed to the SNS topic of its name")
    except FAILURES as error:
        if not is_gone(error):
            raise
        return replace(seen, lacks="the SNS topic of its name does not exist")
    finally:
        sns.close()
    if seen.made_when_missing and not queue.get("Policy"):
        return replace(seen, lacks="it has no policy that lets the SNS topic of its name send")
    found = FanOut(
        name=seen.name, topic_arn=arn, topic=topic, queue=queue, subscription=subscription
    )
    return replace(seen, unfit="; ".join(fan_out.lacks(found)), topic=fan_out.warnings(found))


def _others(client: SQSClient, known: Any) -> list[LetterQueueSeen]:
    """Queues of letters that are not *known* and hold some; the first thousand."""
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


def _task_queue(client: SQSClient, at: str, one: WantedTaskQueue, *, ours: bool) -> SqsQueueSeen:
    seen = SqsQueueSeen(at=at, name=one.name, ours=ours, made_with=one.made_with)
    given = _attributes(client, one.name, one.url)
    if given is None:
        return replace(seen, exists=False)
    redrive = given.get("RedrivePolicy", "")
    return replace(
        seen,
        retention=_span(given, "MessageRetentionPeriod"),
        visibility=_span(given, "VisibilityTimeout"),
        moving=moving(redrive, "message") if redrive else "",
    )


def _span(given: Mapping[str, str], name: str) -> timedelta | None:
    text = given.get(name, "")
    return timedelta(seconds=int(text)) if text.isdecimal() else None


def _attributes(client: SQSClient, name: str, url: str = "") -> dict[str, str] | None:
    """The attributes of a queue; None where it does not exist."""
    try:
        url = url or client.get_queue_url(QueueName=name)["QueueUrl"]
        reply: Any = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    except FAILURES as error:
        if is_gone(error):
            return None
        raise
    return dict(reply.get("Attributes", {}))


def _waiting(given: dict[str, str] | None) -> int:
    return int((given or {}).get("ApproximateNumberOfMessages", "0"))
