"""What SNS wraps a message in where a subscription has no raw delivery. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from angzarr.adapters.sqs.letter_entries import CONTENT_TYPE

#: What every notification has and no letter does; asked before the text is parsed.
_MARK: Final = '"TopicArn"'


class Carried(NamedTuple):
    """The text of a message and what it says of its form, which may be nothing."""

    text: str
    content_type: str


def unwrapped(text: str, content_type: str) -> Carried:
    """Return what *text* carries: itself, unless it is a notification of SNS; never fails."""
    if content_type or _MARK not in text:
        return Carried(text, content_type)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return Carried(text, content_type)
    if not _is_notification(given):
        return Carried(text, content_type)
    return Carried(given["Message"], _content_type(given.get("MessageAttributes")))


def _is_notification(given: Any) -> bool:
    return (
        isinstance(given, dict)
        and given.get("Type") == "Notification"
        and isinstance(given.get("TopicArn"), str)
        and isinstance(given.get("Message"), str)
    )


def _content_type(attributes: Any) -> str:
    named = attributes.get(CONTENT_TYPE) if isinstance(attributes, Mapping) else None
    value = named.get("Value") if isinstance(named, Mapping) else None
    return value if isinstance(value, str) else ""
