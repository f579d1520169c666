"""Rules that tell from AWS' answers whether a topic's messages arrive in its queue. Pure.

They judge the policies that AWS' guides recommend, and say so where a condition is beyond them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: Who sends for a topic.
_SENDER: Final = "sns.amazonaws.com"
_ACTION: Final = "sqs:SendMessage"
#: Condition operators that compare text, whether with wildcards or without.
_COMPARISONS: Final = frozenset(
    {"ArnEquals", "ArnLike", "StringEquals", "StringLike", "StringEqualsIgnoreCase"}
)
_SUFFIXES: Final = re.compile(r"^(ForAnyValue:|ForAllValues:)?(?P<operator>\w+?)(IfExists)?$")


class Sending(Enum):
    """Whether the topic may send to the queue."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    #: It is allowed under a condition that we cannot judge.
    UNCLEAR = "unclear"


def policy_for(queue_arn: str, topic_arn: str) -> str:
    """The policy that lets only the topic send to the queue."""
    statement = {
        "Sid": "angzarr",
        "Effect": "Allow",
        "Principal": {"Service": _SENDER},
        "Action": _ACTION,
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def judge(policy: str, queue_arn: str, topic_arn: str) -> Sending:
    """Whether *policy*, the text of a queue's, lets the topic send to it."""
    facts = _facts(topic_arn)
    said = [
        (str(one.get("Effect")), _holds(one, facts))
        for one in _statements(policy)
        if _concerns(one, queue_arn)
    ]
    if ("Deny", True) in said:
        return Sending.REFUSED
    if ("Allow", True) in said:
        return Sending.ALLOWED
    return Sending.UNCLEAR if ("Allow", None) in said else Sending.REFUSED


def _facts(topic_arn: str) -> dict[str, str]:
    """The condition keys, in small letters, of a request by the topic."""
    account = "".join(topic_arn.split(":")[4:5])
    return {
        "aws:sourcearn": topic_arn,
        "aws:sourceaccount": account,
        "aws:sourceowner": account,
        "aws:securetransport": "true",
        "aws:principalservicename": _SENDER,
        "aws:principalisawsservice": "true",
    }


def _statements(policy: str) -> list[Mapping[str, Any]]:
    try:
        told = json.loads(policy)
    except (ValueError, RecursionError):
        return []
    given = told.get("Statement") if isinstance(told, dict) else None
    return [one for one in _many(given) if isinstance(one, dict)]


def _concerns(statement: Mapping[str, Any], queue_arn: str) -> bool:
    """True if it speaks of a topic's messages to the queue."""
    return (
        _is_sender(statement.get("Principal"))
        and _any_like(statement.get("Action"), _ACTION.lower(), lower=True)
        and _any_like(statement.get("Resource"), queue_arn)
    )


def _is_sender(principal: Any) -> bool:
    if not isinstance(principal, dict):
        return bool(principal == "*")
    return "*" in _many(principal.get("AWS")) or bool(
        {_SENDER, "*"} & {one for one in _many(principal.get("Service")) if isinstance(one, str)}
    )


def _holds(statement: Mapping[str, Any], facts: Mapping[str, str]) -> bool | None:
    """True if all its conditions hold; None where one cannot be judged."""
    conditions = statement.get("Condition") or {}
    if not isinstance(conditions, dict):
        return None
    told = [
        _one_holds(operator, key, wanted, facts)
        for operator, keys in conditions.items()
        for key, wanted in (keys.items() if isinstance(keys, dict) else [("", None)])
    ]
    return False if False in told else None if None in told else True


def _one_holds(operator: str, key: str, wanted: Any, facts: Mapping[str, str]) -> bool | None:
    value = facts.get(key.lower())
    found = _SUFFIXES.match(operator)
    name = found.group("operator") if found else operator
    if value is None:
        return None
    if name in _COMPARISONS:
        return _any_like(wanted, value)
    if name == "Bool":
        return value in {str(one).lower() for one in _many(wanted)}
    return None


def _any_like(patterns: Any, value: str, *, lower: bool = False) -> bool:
    """True if one of *patterns* fits *value*: ``*`` any characters, ``?`` one."""
    texts = [one.lower() if lower else one for one in _many(patterns) if isinstance(one, str)]
    return any(_like(text, value) for text in texts)


def _like(pattern: str, value: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _many(given: Any) -> Iterable[Any]:
    """*given* as a list, which a policy writes for one without brackets."""
    return given if isinstance(given, list) else [] if given is None else [given]


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
class FanOut:
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
        """The endpoint that the subscription must have."""
        return self.queue["QueueArn"]


def topic_beside(queue_arn: str) -> str:
    """The address of the topic that has the queue's name."""
    parts = queue_arn.split(":")
    return ":".join([*parts[:2], "sns", *parts[3:]])


def queue_beside(topic_arn: str) -> str:
    """The address of the queue that has the topic's name."""
    parts = topic_arn.split(":")
    return ":".join([*parts[:2], "sqs", *parts[3:]])


def lacks(found: FanOut) -> list[str]:
    """The reasons why letters to the topic would be lost, each with its cure."""
    return [*_of_the_queue(found), *_of_the_subscription(found)]


def _of_the_queue(found: FanOut) -> Iterator[str]:
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


def _of_the_subscription(found: FanOut) -> Iterator[str]:
    given = found.subscription
    if given.get("PendingConfirmation") == "true":
        yield f"the subscription of the queue {found.name} waits for its confirmation: confirm it"
    if given.get("FilterPolicy", "") not in ("", "{}"):
        yield (
            f"the subscription of the queue {found.name} has a FilterPolicy, which drops what does"
            " not fit: remove it"
        )


def warnings(found: FanOut) -> list[str]:
    """The other risks and differences, which do not stop letters."""
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


def limit(found: FanOut) -> int:
    """The bytes that one letter, and one batch, may have to arrive in the queue."""
    topic = _number(found.topic.get("MaximumMessageSize"), DEFAULT_LIMIT)
    queue = _number(found.queue.get("MaximumMessageSize"), DEFAULT_LIMIT)
    if found.subscription.get("RawMessageDelivery") != "true":
        queue = max(0, queue - _ENVELOPE) // _ESCAPED
    return min(topic, queue)


def new_for(found: FanOut, now: float) -> float:
    """The seconds until all of AWS knows what was made just now; *now* is Unix time."""
    if found.is_new:
        return NEW_FOR
    return _left(NEW_FOR, found.queue.get("CreatedTimestamp"), now)


def changed_for(found: FanOut, now: float) -> float:
    """The seconds until a policy that was given to an older queue is in force."""
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
    """The rest of *span*; clocks that differ make it no longer."""
    return min(span, max(0.0, _number(since, 0) + span - now))


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default
