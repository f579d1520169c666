"""What SNS wraps a message in where a subscription has no raw delivery. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from angzarr.adapters.sqs.letter_text import Text, told_by

#: What every notification has and no letter does; asked before the text is parsed.
_MARK: Final = '"TopicArn"'


def unwrapped(given: Text) -> Text:
    """Return what *given* carries: itself, unless it is a notification of SNS; never fails."""
    if any((given.content_type, given.transfer_encoding)) or _MARK not in given.text:
        return given
    try:
        told = json.loads(given.text)
    except (ValueError, RecursionError):
        return given
    if not _is_notification(told):
        return given
    return told_by(_values(told.get("MessageAttributes")), told["Message"])


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
