"""Letters on AWS, as somebody else's client sees them: clients, addresses, raw messages."""

from __future__ import annotations

import base64
import functools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from boto3.session import Session
from botocore.loaders import create_loader
from botocore.session import get_session

from angzarr.adapters.sqs import fan_out
from angzarr.adapters.sqs.dead_letters import SnsSqsDeadLetterQueue, SqsDeadLetterQueue
from angzarr.dead_letters.codec import PROTOBUF_CONTENT_TYPE
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue
from contracts.dead_letters import LimitedLettersContract, a_letter, take


class AwsLetters:
    """What the tests of each backend on AWS share."""

    adapter: type[SqsDeadLetterQueue] = SqsDeadLetterQueue
    fifo = False
    large = 240_000
    by_one_answer = 10
    unfit_type = "text/\x00"

    @pytest.fixture(autouse=True)
    def backend(self, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint = sqs_endpoint
        self.sqs, self.sns = clients(sqs_endpoint)
        monkeypatch.setattr(boto3.session, "Session", _session)
        monkeypatch.setattr(fan_out, "NEW_FOR", 0.0)  # LocalStack is one process
        monkeypatch.setattr(fan_out, "CHANGED_FOR", 0.0)

    def open(self, **changes: Any) -> SqsDeadLetterQueue:
        at = {"region": "us-east-1", "endpoint_url": self.endpoint, "fifo": self.fifo}
        return self.adapter(**(at | changes))

    def open_away(self, port: int) -> SqsDeadLetterQueue:
        return self.open(
            endpoint_url=f"http://s3cret:s3cret@127.0.0.1:{port}",
            timeout=timedelta(seconds=1),
            options={"aws_access_key_id": "s3cret", "aws_secret_access_key": "s3cret"},
        )

    def name(self, domain: str) -> str:
        return queue_name(domain, ".fifo" if self.fifo else "")

    def url(self, domain: str) -> str:
        return self.sqs.get_queue_url(QueueName=self.name(domain))["QueueUrl"]

    def attributes(self, domain: str) -> dict[str, str]:
        reply: Any = self.sqs.get_queue_attributes(
            QueueUrl=self.url(domain), AttributeNames=["All"]
        )
        attributes: dict[str, str] = reply["Attributes"]
        return attributes

    def make_queue(self, domain: str, **attributes: str) -> str:
        kind = {"FifoQueue": "true"} if self.fifo else {}
        settings: Any = {"MessageRetentionPeriod": "1209600", **kind, **attributes}
        return self.sqs.create_queue(QueueName=self.name(domain), Attributes=settings)["QueueUrl"]

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        self.sqs.send_message(
            QueueUrl=self.url(domain),
            MessageBody=text_of(raw, content_type),
            **self.beside(content_type),
        )

    def put_record(self, domain: str, raw: bytes, name: str) -> None:
        order = {"MessageGroupId": name, "MessageDeduplicationId": name} if self.fifo else {}
        attributes: Any = {
            "name": {"DataType": "String", "StringValue": name},
            "bytes": {"DataType": "Binary", "BinaryValue": b"\xff"},
        }
        self.sqs.send_message(
            QueueUrl=self.url(domain),
            MessageBody=raw.decode(),
            MessageAttributes=attributes,
            **order,
        )

    def beside(self, content_type: str | None) -> Any:
        """Return what goes with a raw message."""
        attributes: Any = {}
        if content_type:
            attributes = {"content_type": {"DataType": "String", "StringValue": content_type}}
        order = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if self.fifo else {}
        return {"MessageAttributes": attributes, **order}


class SizedAwsLetters(AwsLetters, LimitedLettersContract):
    """What those share whose queues are not FIFO."""

    def test_a_letter_just_under_the_limit_is_taken(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain, metadata={"large": "x" * (self.limit - 4_000)})
        assert queue.put([letter]) == [None]
        assert take(queue, [domain], 1)[0].letter == letter

    def test_domain_and_correlation_travel_as_attributes(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain)
        assert letter.event is not None
        queue.put([replace(letter, event=replace(letter.event, correlation_id="c-1"))])
        [message] = self.sqs.receive_message(
            QueueUrl=self.url(domain), MessageAttributeNames=["All"], WaitTimeSeconds=5
        )["Messages"]
        said = {k: v["StringValue"] for k, v in message["MessageAttributes"].items()}
        assert said == {
            "content_type": "application/json",
            "domain": domain,
            "correlation_id": "c-1",
        }


class TopicLetters(AwsLetters):
    """The same with a topic before the queue."""

    adapter = SnsSqsDeadLetterQueue

    def topic(self, domain: str) -> str:
        parts = self.attributes(domain)["QueueArn"].split(":")
        return ":".join([*parts[:2], "sns", *parts[3:]])

    def make_topic(self, domain: str) -> str:
        kind = {"FifoTopic": "true"} if self.fifo else {}
        return str(self.sns.create_topic(Name=self.name(domain), Attributes=kind)["TopicArn"])

    def subscribe(self, domain: str, **attributes: str) -> str:
        made = self.sns.subscribe(
            TopicArn=self.topic(domain),
            Protocol="sqs",
            Endpoint=self.attributes(domain)["QueueArn"],
            Attributes=attributes,
        )
        return str(made["SubscriptionArn"])

    def subscriptions(self, domain: str) -> list[str]:
        told = self.sns.list_subscriptions_by_topic(TopicArn=self.topic(domain))["Subscriptions"]
        return [one["SubscriptionArn"] for one in told]

    def publish_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        self.sns.publish(
            TopicArn=self.topic(domain),
            Message=text_of(raw, content_type),
            **self.beside(content_type),
        )


_LOADER = create_loader()


def _session(**options: Any) -> Session:
    """Return a session that does not parse AWS' models again, which takes 0.1 s each time."""
    core = get_session()
    core.register_component("data_loader", _LOADER)
    return Session(botocore_session=core, **options)


@functools.cache
def clients(endpoint: str) -> tuple[Any, Any]:
    """Return clients for SQS and SNS, which take a while to make."""
    at: Any = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return boto3.client("sqs", **at), boto3.client("sns", **at)


def text_of(raw: bytes, content_type: str | None) -> str:
    body = base64.b64encode(raw) if content_type == PROTOBUF_CONTENT_TYPE else raw
    return body.decode()
