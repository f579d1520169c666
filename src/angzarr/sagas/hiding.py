"""What a person may see of rejected commands: texts and data as letters are redacted (spec L3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.redaction import Redaction
from angzarr.events.event import Event
from angzarr.events.message import Message
from angzarr.sagas.log import Case

#: Returns an event's data without what is hidden.
HideData: TypeAlias = Callable[[Event], Any]

#: Stands in a letter that nobody keeps.
_NOBODY: Final = ""


class Hiding(NamedTuple):
    """Hides what the settings hide in letters."""

    redaction: Redaction

    def of_case(self, case: Case, command: Event | None = None) -> Case:
        """Return *case* with its texts redacted: what is hidden in *command* is hidden there, too.

        Lists, which do not read commands, hide what looks like a secret.
        """
        letter = replace(_letter(case, command), explanation=case.reason, error_message=case.answer)
        shown = self.redaction(letter)
        return replace(case, reason=shown.explanation, answer=shown.error_message)

    def data(self, case: Case, event: Event) -> Any:
        """Return the data of *event*, which belongs to *case*, redacted."""
        shown = self.redaction(_letter(case, event)).event
        return shown.data if shown else None


def _letter(case: Case, event: Event | None) -> DeadLetter:
    """Return the letter that the message of *event* would be in."""
    body = b"" if event is None else json.dumps([[event.data], {}, {}]).encode()
    message = Message(
        body=body, content_type="application/json", content_encoding="utf-8", headers={}, queue=""
    )
    return DeadLetter(
        id=case.id,
        domain=case.source.domain,
        handler=_NOBODY,
        reason=Reason.REFUSED,
        explanation="",
        message=message,
        event=event,
        sent_to_dlq_at=case.rejected_at,
    )
