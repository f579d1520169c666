"""Subscriptions of queues to topics: found, or made where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from angzarr.adapters.sqs.client import FAILURES, Client, is_gone
from angzarr.errors import DeadLetterQueueUnavailable


class Subscription(NamedTuple):
    """A subscription as AWS tells it, and whether it was made just now."""

    attributes: Mapping[str, str]
    is_new: bool = False


class Subscriptions:
    """The subscriptions that were found, by their topic; safe from any thread."""

    def __init__(self, client: Client, *, create_missing: bool) -> None:
        self._client = client
        self._create_missing = create_missing
        self._arns: dict[str, str] = {}

    def find(self, name: str, topic_arn: str, queue_arn: str) -> Subscription:
        """Return the queue's subscription to the topic *name*."""
        if known := self._arns.get(topic_arn):
            attributes = self._attributes(known)
            if attributes is not None and attributes.get("Endpoint") == queue_arn:
                return Subscription(attributes)
            self._arns.pop(topic_arn, None)
        found = self._search(topic_arn, queue_arn)
        attributes = self._attributes(found) if found else None
        if attributes is None:
            return self._subscribe(name, topic_arn, queue_arn)
        self._arns[topic_arn] = found
        return Subscription(attributes)

    def _search(self, topic_arn: str, queue_arn: str) -> str:
        """Return the address of the queue's subscription, or nothing."""
        pages = self._client.get().get_paginator("list_subscriptions_by_topic")
        for page in pages.paginate(TopicArn=topic_arn):
            for one in page.get("Subscriptions", ()):
                if (one.get("Protocol"), one.get("Endpoint")) == ("sqs", queue_arn):
                    return str(one["SubscriptionArn"])
        return ""

    def _attributes(self, arn: str) -> Mapping[str, str] | None:
        """Return what AWS tells of it; None where it is gone."""
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

    def _subscribe(self, name: str, topic_arn: str, queue_arn: str) -> Subscription:
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
        return Subscription(self._attributes(made["SubscriptionArn"]) or {}, is_new=True)
