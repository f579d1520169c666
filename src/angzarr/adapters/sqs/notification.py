"""What SNS wraps a message in where a subscription has no raw delivery. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from angzarr.adapters.sqs.letter_text import Text, told_by
from angzarr.runtime.json_bounds import Bounds, check_json

#: A notification holds its message as one text, and ten attributes.
_BOUNDS: Final = Bounds(nodes=1_000, depth=20)
#: What every notification has and no letter does; asked before the text is parsed.
_MARK: Final = '"TopicArn"'


def unwrapped(given: Text) -> Text:
    """Return what *given* carries: itself, unless it is a notification of SNS; never fails."""
    if any((given.content_type, given.transfer_encoding)):
        return given
    told = _notification(given.text)
    if told is None:
        return given
    return told_by(_values(told.get("MessageAttributes")), told["Message"])


def attributes_of(text: str) -> dict[str, str]:
    """Return the attributes of the message in a notification; none where *text* is something else.

    Its topic and id are among them, since nothing else keeps them.
    """
    told = _notification(text)
    if told is None:
        return {}
    named = {name: told.get(name) for name in ("TopicArn", "MessageId", "Subject", "Timestamp")}
    said = {f"sns:{name}": value for name, value in named.items() if isinstance(value, str)}
    return {**said, **_values(told.get("MessageAttributes"))}


def _notification(text: str) -> dict[str, Any] | None:
    if _MARK not in text:
        return None
    try:
        check_json(text, _BOUNDS)
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told if _is_notification(told) else None


def _is_notification(given: Any) -> bool:
    return (
        isinstance(given, dict)
        and given.get("Type") == "Notification"
        and isinstance(given.get("TopicArn"), str)
        and isinstance(given.get("Message"), str)
    )


def _values(attributes: Any) -> dict[str, str]:
    """Return the texts among *attributes*, which are another's: they may be anything."""
    named = attributes if isinstance(attributes, Mapping) else {}
    values = {name: one.get("Value") for name, one in named.items() if isinstance(one, Mapping)}
    return {name: value for name, value in values.items() if isinstance(value, str)}
