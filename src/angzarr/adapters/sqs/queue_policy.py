"""The policy of a queue: what ours says, and whether another's lets a topic send. Pure.

It judges what AWS' guides make people write, and says so where a condition is beyond it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
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
    """Return the policy that lets the topic, and nobody else's, send to the queue."""
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
    """Return whether *policy*, the text of a queue's, lets the topic send to it."""
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
    """Return what AWS knows of a request of the topic's, by condition key in small letters."""
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
    """Tell whether it speaks of a topic's messages to the queue."""
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
    """Tell whether all its conditions hold; None where one cannot be judged."""
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
    """Tell whether one of *patterns* fits *value*: ``*`` any characters, ``?`` one."""
    texts = [one.lower() if lower else one for one in _many(patterns) if isinstance(one, str)]
    return any(_like(text, value) for text in texts)


def _like(pattern: str, value: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _many(given: Any) -> Iterable[Any]:
    """Return *given* as a list, which a policy writes for one without brackets."""
    return given if isinstance(given, list) else [] if given is None else [given]
