"""Whether what a topic is given arrives in its queue: rules over what AWS says of both. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from angzarr.adapters.sqs.queue_policy import Sending, judge, policy_for

#: Bytes of a message, and of a batch, that a topic takes whose attributes say no other number.
DEFAULT_LIMIT: Final = 256 * 1024
#: Bytes that SNS may add to a message that it does not deliver raw.
_ENVELOPE: Final = 4096
#: By how much a text may grow when it is written into JSON as a string.
_ESCAPED: Final = 3
#: Seconds that what is new needs, and a queue that was changed, until all of AWS knows it.
NEW_FOR: Final = 2.0
CHANGED_FOR: Final = 60.0
#: The key that SQS has by itself, which SNS may not use.
_FORBIDDEN_KEY: Final = "alias/aws/sqs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A topic, its queue and the subscription between them, each with AWS' attributes of it."""

    name: str
    topic_arn: str
    topic: Mapping[str, str]
    queue: Mapping[str, str]
    subscription: Mapping[str, str]
    #: Whether the subscription was made just now, and whether the queue was given its policy.
    is_new: bool = False
    policy_is_new: bool = False

    @property
    def queue_arn(self) -> str:
        """What the subscription must lead to."""
        return self.queue["QueueArn"]


def topic_beside(queue_arn: str) -> str:
    """Return the address of the topic that has the queue's name."""
    parts = queue_arn.split(":")
    return ":".join([*parts[:2], "sns", *parts[3:]])


def queue_beside(topic_arn: str) -> str:
    """Return the address of the queue that has the topic's name."""
    parts = topic_arn.split(":")
    return ":".join([*parts[:2], "sqs", *parts[3:]])


def lacks(found: Found) -> list[str]:
    """Return why letters given to the topic would be lost, each with what to do."""
    return [*_of_the_queue(found), *_of_the_subscription(found)]


def _of_the_queue(found: Found) -> Iterator[str]:
    policy = found.queue.get("Policy", "")
    if judge(policy, found.queue_arn, found.topic_arn) is Sending.REFUSED:
        wanted = policy_for(found.queue_arn, found.topic_arn)
        yield (
            f"the policy of the queue {found.name} does not let the topic send to it:"
            f" add the statement of {wanted}"
        )
    if found.queue.get("KmsMasterKeyId", "").endswith(_FORBIDDEN_KEY):
        yield (
            f"the queue {found.name} is encrypted with {_FORBIDDEN_KEY}, which SNS may not use:"
            " set SqsManagedSseEnabled=true, or a key of yours that sns.amazonaws.com may use"
        )


def _of_the_subscription(found: Found) -> Iterator[str]:
    given = found.subscription
    if given.get("PendingConfirmation") == "true":
        yield f"the subscription of the queue {found.name} waits for its confirmation: confirm it"
    if given.get("FilterPolicy", "") not in ("", "{}"):
        yield (
            f"the subscription of the queue {found.name} has a FilterPolicy, which drops what does"
            " not fit: remove it"
        )


def warnings(found: Found) -> list[str]:
    """Return what may cost letters or is unlike ours, and keeps none from being put."""
    told = []
    if found.subscription.get("RawMessageDelivery") != "true":
        told.append("its subscription has no raw delivery (set RawMessageDelivery=true)")
    policy = found.queue.get("Policy", "")
    if judge(policy, found.queue_arn, found.topic_arn) is Sending.UNCLEAR:
        told.append("its queue's policy has conditions that are not judged (see that SNS may send)")
    if found.queue.get("KmsMasterKeyId"):
        told.append(
            "its queue is encrypted with a key of yours (see that sns.amazonaws.com may use"
            " kms:GenerateDataKey and kms:Decrypt)"
        )
    return told


def limit(found: Found) -> int:
    """Return the bytes that one letter, and one batch, may have to arrive in the queue."""
    topic = _number(found.topic.get("MaximumMessageSize"), DEFAULT_LIMIT)
    queue = _number(found.queue.get("MaximumMessageSize"), DEFAULT_LIMIT)
    if found.subscription.get("RawMessageDelivery") != "true":
        queue = max(0, queue - _ENVELOPE) // _ESCAPED
    return min(topic, queue)


def new_for(found: Found, now: float) -> float:
    """Return the seconds until all of AWS knows what was made just now; *now* is Unix time."""
    if found.is_new:
        return NEW_FOR
    return _left(NEW_FOR, found.queue.get("CreatedTimestamp"), now)


def changed_for(found: Found, now: float) -> float:
    """Return the seconds until a policy that was given to an older queue is in force."""
    if found.policy_is_new:
        return CHANGED_FOR
    queue = found.queue
    created, changed = (
        _number(queue.get(name), 0) for name in ("CreatedTimestamp", "LastModifiedTimestamp")
    )
    if changed <= created + 1:  # a queue is born in no one second
        return 0.0
    return _left(CHANGED_FOR, queue.get("LastModifiedTimestamp"), now)


def _left(span: float, since: str | None, now: float) -> float:
    """Return what is left of *span*; clocks that differ make it no longer."""
    return min(span, max(0.0, _number(since, 0) + span - now))


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default
