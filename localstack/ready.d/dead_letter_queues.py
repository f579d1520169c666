"""Run by LocalStack once it is ready: a dead-letter queue and a topic that feeds it, per domain.

The domains stand in ANGZARR_DOMAINS, separated by commas; running it again changes nothing.
"""

from __future__ import annotations

import json
import os

import boto3

#: Those of the examples, and the one of letters that name none.
DOMAINS = os.environ.get("ANGZARR_DOMAINS") or "order,poker,unknown"
KEEP_SECONDS = 14 * 24 * 3600  # the longest that SQS allows


def create(domain: str) -> None:
    """Create the queue and the topic of *domain* and let the topic feed the queue."""
    name = f"angzarr-dlq-{domain.strip().replace('.', '-')}"
    session = boto3.Session("test", "test", region_name=REGION)
    sqs, sns = (session.client(service, endpoint_url=ENDPOINT) for service in ("sqs", "sns"))
    keep = {"MessageRetentionPeriod": str(KEEP_SECONDS)}
    queue = sqs.create_queue(QueueName=name, Attributes=keep)["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    queue_arn = asked["Attributes"]["QueueArn"]
    topic_arn = sns.create_topic(Name=name)["TopicArn"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": policy(queue_arn, topic_arn)})
    sns.subscribe(
        TopicArn=topic_arn,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"RawMessageDelivery": "true"},
    )


def policy(queue_arn: str, topic_arn: str) -> str:
    """Allow the topic, and nobody else, to send to the queue."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


REGION = os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
PORT = (os.environ.get("GATEWAY_LISTEN") or "127.0.0.1:4566").rpartition(":")[2]
ENDPOINT = f"http://127.0.0.1:{PORT}"

for each in DOMAINS.split(","):
    create(each)
