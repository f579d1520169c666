"""The SNS topics of letters; no letter is published before a subscription delivers to its queue.

SNS confirms a letter without a subscriber, and loses it. So each topic is checked before a process
first publishes to it, once a minute, and after every error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from angzarr.adapters.sqs import fan_out
from angzarr.adapters.sqs.client import FAILURES, Client, Service, is_gone
from angzarr.adapters.sqs.fan_out import FanOut, policy_for
from angzarr.adapters.sqs.queues import SqsQueues
from angzarr.errors import DeadLetterQueueUnavailable


class TopicSubscription(NamedTuple):
    """A subscription as AWS tells it, and whether it was made just now."""

    attributes: Mapping[str, str]
    is_new: bool = False


class Subscriptions:
    """The subscriptions that were found, by their topic; safe from any thread."""

    def __init__(self, client: Client, *, create_missing: bool) -> None:
        self._client = client
        self._create_missing = create_missing
        self._arns: dict[str, str] = {}

    def find(self, name: str, topic_arn: str, queue_arn: str) -> TopicSubscription:
        """The queue's subscription to the topic *name*."""
        if known := self._arns.get(topic_arn):
            attributes = self._attributes(known)
            if attributes is not None and attributes.get("Endpoint") == queue_arn:
                return TopicSubscription(attributes)
            self._arns.pop(topic_arn, None)
        found = self._search(topic_arn, queue_arn)
        attributes = self._attributes(found) if found else None
        if attributes is None:
            return self._subscribe(name, topic_arn, queue_arn)
        self._arns[topic_arn] = found
        return TopicSubscription(attributes)

    def _search(self, topic_arn: str, queue_arn: str) -> str:
        """The address of the queue's subscription, or nothing."""
        pages = self._client.get().get_paginator("list_subscriptions_by_topic")
        for page in pages.paginate(TopicArn=topic_arn):
            for one in page.get("Subscriptions", ()):
                if (one.get("Protocol"), one.get("Endpoint")) == ("sqs", queue_arn):
                    return str(one["SubscriptionArn"])
        return ""

    def _attributes(self, arn: str) -> Mapping[str, str] | None:
        """AWS' answer about it; None where it is gone."""
        if not arn.startswith("arn:"):  # AWS lists it by a word: not confirmed, or deleted
            return {"PendingConfirmation": "true"} if arn == "PendingConfirmation" else None
        try:
            reply = self._client.get().get_subscription_attributes(SubscriptionArn=arn)
        except FAILURES as error:
            if not is_gone(error):
                raise
            return None
        attributes: Mapping[str, str] = reply["Attributes"]
        return attributes

    def _subscribe(self, name: str, topic_arn: str, queue_arn: str) -> TopicSubscription:
        if not self._create_missing:
            msg = (
                f"the queue {name} is not subscribed to the topic of that name, so letters would be"
                " lost: subscribe it, with RawMessageDelivery=true, or set dlq.create_missing to"
                " true"
            )
            raise DeadLetterQueueUnavailable(msg)
        made = self._client.get().subscribe(
            TopicArn=topic_arn,
            Protocol="sqs",
            Endpoint=queue_arn,
            Attributes={"RawMessageDelivery": "true"},
            ReturnSubscriptionArn=True,
        )
        self._arns[topic_arn] = made["SubscriptionArn"]
        return TopicSubscription(self._attributes(made["SubscriptionArn"]) or {}, is_new=True)


_LOG: Final = logging.getLogger(__name__)
#: Seconds for which a topic that was looked at is trusted.
TRUSTED_FOR: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTopic:
    """A topic that leads to its queue, and how much of it fits."""

    arn: str
    limit: int
    until: float


class SnsTopics:
    """Topics, each with its queue; safe from any thread."""

    def __init__(
        self,
        service: Service,
        *,
        fifo: bool,
        create_missing: bool,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.queues = SqsQueues(
            service, fifo=fifo, create_missing=create_missing, more=self._policy_of_new
        )
        self._client = Client(service, "sns")
        self._subscriptions = Subscriptions(self._client, create_missing=create_missing)
        self._monotonic = monotonic
        self._sleep = sleep
        self._ready: dict[str, ReadyTopic] = {}
        self._in_force: dict[str, str] = {}

    @property
    def client(self) -> Any:
        """The client of SNS; it may be used from any thread."""
        return self._client.get()

    def ready(self, domain: str) -> ReadyTopic:
        """*domain*'s topic; raises DeadLetterQueueUnavailable if letters would be lost."""
        name = self.queues.name(domain)
        known = self._ready.get(name)
        if known is None or known.until <= self._monotonic():
            known = self._ready[name] = self._looked_at(domain, name)
        return known

    def doubt(self, domain: str) -> None:
        """Look at *domain*'s topic again before it is given another letter."""
        self._ready.pop(self.queues.name(domain), None)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self.queues.close()

    def _looked_at(self, domain: str, name: str) -> ReadyTopic:
        self._ready.pop(name, None)
        began = self._monotonic()
        try:
            found, now = self._found(domain, name)
        except FAILURES as error:
            if not self.queues.forget_if_gone(domain, error):
                raise
            found, now = self._found(domain, name)
        if told := fan_out.lacks(found):
            msg = f"letters given to the topic {name} would be lost: {'; '.join(told)}"
            raise DeadLetterQueueUnavailable(msg)
        self._wait_until_in_force(found, now)
        return ReadyTopic(
            arn=found.topic_arn, limit=fan_out.limit(found), until=began + TRUSTED_FOR
        )

    def _found(self, domain: str, name: str) -> tuple[FanOut, float]:
        """The topic and its queue, made where they were missing, and the time by AWS' clock."""
        url = self.queues.url(domain)
        reply: Any = self.queues.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        queue = dict(reply["Attributes"])
        topic_arn = fan_out.topic_beside(queue["QueueArn"])
        topic = self._topic(name, topic_arn)
        policy_is_new = self._give_policy(url, queue, topic_arn)
        subscription = self._subscriptions.find(name, topic_arn, queue["QueueArn"])
        found = FanOut(
            name=name,
            topic_arn=topic_arn,
            topic=topic,
            queue=queue,
            subscription=subscription.attributes,
            is_new=subscription.is_new,
            policy_is_new=policy_is_new,
        )
        return found, _server_time(reply)

    def _topic(self, name: str, arn: str) -> Mapping[str, str]:
        """The topic's attributes."""
        try:
            return self._attributes(arn)
        except FAILURES as error:
            if not is_gone(error):
                raise
        if not self.queues.create_missing:
            msg = (
                f"the SNS topic {name} does not exist beside the queue of that name:"
                " create it, or set dlq.create_missing to true"
            )
            raise DeadLetterQueueUnavailable(msg)
        self._create(name)
        return self._attributes(arn)

    def _attributes(self, arn: str) -> Mapping[str, str]:
        given: Mapping[str, str] = self.client.get_topic_attributes(TopicArn=arn)["Attributes"]
        return given

    def _create(self, name: str) -> str:
        """Create the topic, unless it is there, and return its address."""
        kind = {"FifoTopic": "true", "ContentBasedDeduplication": "false"}
        attributes = kind if self.queues.fifo else {}
        return str(self.client.create_topic(Name=name, Attributes=attributes)["TopicArn"])

    def _policy_of_new(self, name: str) -> Mapping[str, str]:
        """The policy of a new queue: given later, it would be in force a minute later."""
        topic_arn = self._create(name)
        return {"Policy": policy_for(fan_out.queue_beside(topic_arn), topic_arn)}

    def _give_policy(self, url: str, queue: dict[str, str], topic_arn: str) -> bool:
        """Give a policy to a queue that has none; True if it did. Another's is not touched."""
        if queue.get("Policy") or not self.queues.create_missing:
            return False
        queue["Policy"] = policy = policy_for(queue["QueueArn"], topic_arn)
        self.queues.client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        return True

    def _wait_until_in_force(self, found: FanOut, now: float) -> None:
        """Wait for a new queue; of one that was changed say that letters must wait."""
        policy = found.queue.get("Policy", "")
        if self._in_force.get(found.name) == policy and not found.is_new:
            return
        if wait := fan_out.changed_for(found, now):
            msg = (
                f"the queue {found.name} was changed a moment ago: its letters wait"
                f" {wait:.0f} s, until its policy is surely in force"
            )
            raise DeadLetterQueueUnavailable(msg)
        self._sleep(fan_out.new_for(found, now))
        if found.name not in self._in_force and (told := fan_out.warnings(found)):
            _LOG.warning(
                "topic_differs: the topic %s is unlike ours: %s", found.name, "; ".join(told)
            )
        self._in_force[found.name] = policy


def _server_time(reply: Mapping[str, Any]) -> float:
    """The time by AWS' clock, which also dates the queues."""
    told = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return parsedate_to_datetime(told).timestamp()
    except ValueError:
        return time.time()
