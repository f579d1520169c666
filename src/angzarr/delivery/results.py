"""Results: the values and errors of finished events as JSON text, kept for duplicates (D4)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from angzarr.errors import DeliveryError, text_of

_log = logging.getLogger("angzarr.delivery")

#: Kept as the result of what was skipped. It is no JSON: a release that does not know it takes it
#: for a result that was not kept.
SKIPPED: Final = "skipped"

#: A larger result is not kept; a duplicate of its event then gets None.
MAX_RESULT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Writes and reads them with the serializer of the result backend."""

    dumps: Callable[[Any], str]
    loads: Callable[[str], Any]

    def write(self, value: Any) -> str | None:
        """Return *value* as text; None for what is too large or is no JSON, and so not kept."""
        if value is None:
            return "null"
        try:
            text = self.dumps(value)
        except Exception as error:  # noqa: BLE001 - the event is handled, whatever its value is
            _log.warning("result_not_kept: a duplicate of this event will not get it: %s", error)
            return None
        return text if len(text) <= MAX_RESULT else None

    def read(self, text: str) -> Any:
        """Return the value that `write` wrote."""
        return self.loads(text)

    @staticmethod
    def write_error(error: BaseException, shown: str = "") -> str:
        """Return what a duplicate is told about *error*, its text as *shown* in its letter."""
        message = (shown or text_of(error))[:1000]
        return json.dumps({"type": type(error).__name__, "message": message})

    @staticmethod
    def read_error(text: str) -> DeliveryError:
        """Return an error that tells what `write_error` wrote, in this or another release."""
        try:
            told = dict(json.loads(text))
        except (ValueError, TypeError):
            told = {}
        return DeliveryError(
            f"failed before with {told.get('type', 'an error')}: {told.get('message', '')}"
        )
