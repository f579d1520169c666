"""Publishes letters on SNS, each domain's on its topic, which leads to the domain's queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from angzarr.adapters.sqs.client import FAILURES, is_gone
from angzarr.adapters.sqs.topics import Topics


class TopicOutlet:
    """Sends to each domain's topic, which it has looked at before."""

    service = "SNS"
    body = "Message"

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.fifo = topics.queues.fifo
        self.name = topics.queues.name

    def limit(self, domain: str) -> int:
        """Return the most that the topic takes and its queue can keep."""
        return self._topics.ready(domain).limit

    def send(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        """Publish one batch, once more where the topic was deleted."""
        try:
            return self._publish(domain, requests)
        except FAILURES as error:
            if not is_gone(error):
                raise
            return self._publish(domain, requests)

    def _publish(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        arn = self._topics.ready(domain).arn
        try:
            reply: Mapping[str, Any] = self._topics.client.publish_batch(
                TopicArn=arn, PublishBatchRequestEntries=requests
            )
        except BaseException:
            self._topics.doubt(domain)
            raise
        if reply.get("Failed"):
            self._topics.doubt(domain)
        return reply
