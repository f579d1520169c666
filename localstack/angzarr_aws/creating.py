"""Creating: makes what is missing and tells what is there and otherwise; changes nothing.

Run twice it changes nothing the second time. A topic is made before its queue, and the queue with
its policy: given later, that would be in force a minute later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from angzarr_aws import names
from angzarr_aws.calls import Calls, Missing
from angzarr_aws.description import (
    NO_ENCRYPTION,
    RETENTION,
    SSE_SQS,
    Bucket,
    Description,
    Mistake,
    TaskQueue,
)
from angzarr_aws.policies import from_topic

#: Attributes that are JSON, of which the order of keys says nothing.
_JSON = frozenset({"Policy", "RedrivePolicy", "RedriveAllowPolicy"})


class Creating:
    """One run; `tell` hears of what is there and other than wanted."""

    def __init__(
        self, call: Calls, wanted: Description, region: str, tell: Callable[[str], object]
    ) -> None:
        self._call = call
        self._wanted = wanted
        self._region = region
        self._tell = tell
        self.differences = 0

    def run(self) -> None:
        """Make everything; raises Mistake."""
        topics = [self._topic(domain) for domain in self._wanted.domains if self._wanted.topics]
        aside = self._undelivered(topics) if topics else ""
        for number, domain in enumerate(self._wanted.domains):
            self._letters(domain, topics[number] if topics else "", aside)
        for queue, said in self._wanted.task_queues.items():
            self._tasks(queue, said)
        if self._wanted.bucket is not None:
            self._bucket(self._wanted.bucket)

    # -- letters ----------------------------------------------------------------------------------

    def _topic(self, domain: str) -> str:
        name = names.letters(domain, fifo=self._wanted.fifo)
        kind = {"FifoTopic": "true", "ContentBasedDeduplication": "false"}
        attributes = {**(kind if self._wanted.fifo else {}), **self._key("KmsMasterKeyId")}
        try:
            reply = self._call("sns", "create_topic", Name=name, Attributes=attributes)
        except Mistake as error:
            if "different attributes" not in str(error):
                raise
            raise Mistake(
                f"the topic {name} exists and is encrypted or ordered otherwise:"
                " delete it, or describe it as it is"
            ) from error
        return str(reply["TopicArn"])

    def _undelivered(self, topics: list[str]) -> str:
        name = names.letters(names.UNDELIVERED, fifo=self._wanted.fifo)
        anybodys = f"{topics[0].rpartition(':')[0]}:{names.PREFIX}*"
        policy = from_topic(_queue_beside(topics[0], name), anybodys)
        return self._queue(name, {**self._of_letters(), "Policy": policy})

    def _letters(self, domain: str, topic: str, aside: str) -> None:
        name = names.letters(domain, fifo=self._wanted.fifo)
        attributes = self._of_letters()
        if topic:
            attributes["Policy"] = from_topic(_queue_beside(topic, name), topic)
        arn = self._queue(name, attributes)
        if topic:
            self._subscribe(topic, arn, aside)

    def _of_letters(self) -> dict[str, str]:
        return {
            "MessageRetentionPeriod": str(RETENTION),
            "VisibilityTimeout": str(self._wanted.visibility),
            **({"FifoQueue": "true"} if self._wanted.fifo else {}),
            **self._encryption(),
        }

    def _subscribe(self, topic: str, queue_arn: str, aside: str) -> None:
        wanted = {
            "RawMessageDelivery": "true",
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": aside}),
        }
        reply = self._call("sns", "list_subscriptions_by_topic", TopicArn=topic)
        for one in reply.get("Subscriptions", ()):
            if one["Endpoint"] == queue_arn:
                arn = one["SubscriptionArn"]
                found = self._call("sns", "get_subscription_attributes", SubscriptionArn=arn)
                self._compare(f"the subscription of {_last(topic)}", wanted, found["Attributes"])
                return
        self._call(
            "sns",
            "subscribe",
            TopicArn=topic,
            Protocol="sqs",
            Endpoint=queue_arn,
            Attributes=wanted,
        )

    # -- tasks ------------------------------------------------------------------------------------

    def _tasks(self, queue: str, said: TaskQueue) -> None:
        name = names.tasks(queue, self._wanted.task_queue_prefix)
        kind = {"FifoQueue": "true"} if name.endswith(names.FIFO) else {}
        common = {"MessageRetentionPeriod": str(RETENTION), **kind, **self._encryption()}
        attributes = {**common, "VisibilityTimeout": str(said.visibility_timeout)}
        if said.max_receives is not None:
            aside = self._queue(names.redriven(queue, self._wanted.task_queue_prefix), common)
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": aside, "maxReceiveCount": said.max_receives}
            )
        self._queue(name, attributes)

    # -- both -------------------------------------------------------------------------------------

    def _queue(self, name: str, wanted: Mapping[str, str]) -> str:
        """Make the queue, or tell how it is other than *wanted*; return its address."""
        try:
            url = self._call("sqs", "get_queue_url", QueueName=name)["QueueUrl"]
        except Missing:
            url = self._call("sqs", "create_queue", QueueName=name, Attributes=dict(wanted))[
                "QueueUrl"
            ]
            asked = ["QueueArn"]
            reply = self._call("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=asked)
            return str(reply["Attributes"]["QueueArn"])
        found = self._call("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        self._compare(f"the queue {name}", wanted, found["Attributes"])
        return str(found["Attributes"]["QueueArn"])

    def _encryption(self) -> dict[str, str]:
        if self._wanted.encryption == SSE_SQS:
            return {"SqsManagedSseEnabled": "true"}
        if self._wanted.encryption == NO_ENCRYPTION:
            return {"SqsManagedSseEnabled": "false"}
        return self._key("KmsMasterKeyId")

    def _key(self, attribute: str) -> dict[str, str]:
        key = self._wanted.encryption
        return {} if key in (SSE_SQS, NO_ENCRYPTION) else {attribute: key}

    def _compare(self, what: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
        other = [
            f"{name}={found.get(name) or 'nothing'} (wanted: {value})"
            for name, value in wanted.items()
            if not _equal(name, value, found.get(name))
        ]
        if "RedrivePolicy" in found and "RedrivePolicy" not in wanted:
            other.append(f"RedrivePolicy={found['RedrivePolicy']} (wanted: none)")
        self._differs(what, other)

    def _differs(self, what: str, other: list[str]) -> None:
        if other:
            self.differences += 1
            self._tell(f"{what} is there and was not changed: {'; '.join(other)}")

    def _bucket(self, bucket: Bucket) -> None:
        try:
            self._call("s3", "head_bucket", Bucket=bucket.name)
        except Missing:
            self._make_bucket(bucket)
        else:
            self._compare_bucket(bucket)

    def _make_bucket(self, bucket: Bucket) -> None:
        default = self._region == "us-east-1"
        place = (
            {} if default else {"CreateBucketConfiguration": {"LocationConstraint": self._region}}
        )
        self._call("s3", "create_bucket", Bucket=bucket.name, **place)
        for setting, parameter, wanted in self._settings(bucket):
            self._call("s3", f"put_{setting}", Bucket=bucket.name, **{parameter: wanted})

    def _compare_bucket(self, bucket: Bucket) -> None:
        """Tell what the bucket lacks: one whose making broke off may be open and keep all."""
        other = []
        for setting, parameter, wanted in self._settings(bucket):
            try:
                reply = self._call("s3", f"get_{setting}", Bucket=bucket.name)
                found = reply.get(parameter) or {"Rules": reply.get("Rules", [])}
            except Missing:
                found = None
            if not _holds(found, wanted):
                told = json.dumps(found, default=str) if found else "nothing"
                other.append(f"{setting}={told} (wanted: {json.dumps(wanted)})")
        self._differs(f"the bucket {bucket.name}", other)

    def _settings(self, bucket: Bucket) -> list[tuple[str, str, dict[str, Any]]]:
        """Return what a bucket is given: the name of its calls, their parameter, its value."""
        closed = (
            "BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"
        )  # fmt: skip
        return [
            (
                "public_access_block", "PublicAccessBlockConfiguration",
                dict.fromkeys(closed, True),
            ),
            (
                "bucket_encryption", "ServerSideEncryptionConfiguration",
                {"Rules": [self._at_rest()]},
            ),
            (
                "bucket_lifecycle_configuration", "LifecycleConfiguration",
                {"Rules": [_lifecycle(bucket)]},
            ),
        ]  # fmt: skip

    def _at_rest(self) -> dict[str, Any]:
        key = self._key("KMSMasterKeyID")
        by = {"SSEAlgorithm": "aws:kms", **key} if key else {"SSEAlgorithm": "AES256"}
        return {"ApplyServerSideEncryptionByDefault": by}


def _lifecycle(bucket: Bucket) -> dict[str, Any]:
    expires = {"Expiration": {"Days": bucket.keep_days}} if bucket.keep_days else {}
    return {
        "ID": "letters",
        "Status": "Enabled",
        "Filter": {"Prefix": f"{bucket.prefix}/" if bucket.prefix else ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        **expires,
    }


def _queue_beside(topic_arn: str, name: str) -> str:
    parts = topic_arn.split(":")
    return ":".join([*parts[:2], "sqs", *parts[3:5], name])


def _last(arn: str) -> str:
    return arn.rpartition(":")[2]


def _equal(name: str, wanted: str, found: str | None) -> bool:
    if found is None:
        return wanted == "false"
    if name not in _JSON:
        return wanted == found
    try:
        return bool(_plain(json.loads(wanted)) == _plain(json.loads(found)))
    except ValueError:
        return False


def _holds(found: Any, wanted: Any) -> bool:
    """Tell whether *found* has all that is *wanted*; AWS and others may have added to it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _holds(found.get(key), one) for key, one in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(
            any(_holds(one, each) for one in found) for each in wanted
        )
    return bool(found == wanted)


def _plain(value: Any) -> Any:
    """Return *value* with its numbers as text: AWS writes back either."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value)
