"""A log line for each settled delivery, under the event names of spec O4."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from angzarr.adapters.structlog.logs import name_by
from angzarr.adapters.structlog.own_lines import OwnLines
from angzarr.dead_letters.metadata import trace_id
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import (
    WORDS,
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Parked,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
)

NAME = "angzarr.delivery"
#: Longest error text in a line, in characters; the letter has all of it.
MAX_ERROR = 500
#: The same of the stack of a dead letter: its end.
MAX_STACK = 4000


class LineFields(NamedTuple):
    """What an outcome is called in the log."""

    level: int
    event: str


_SEEN_BEFORE = LineFields(logging.INFO, "event_already_processed_skipping")
_SAID: dict[type[Outcome], LineFields] = {
    Handled: LineFields(logging.INFO, "event_handled"),
    Duplicate: _SEEN_BEFORE,
    Refused: _SEEN_BEFORE,
    Superseded: _SEEN_BEFORE,
    Skipped: LineFields(logging.WARNING, "permanent_error_skipping"),
    Postponed: LineFields(logging.INFO, "event_postponed"),
    Parked: LineFields(logging.INFO, "event_parked"),
    Retried: LineFields(logging.WARNING, "retrying_after_failure"),
    DeadLettered: LineFields(logging.ERROR, "event_sent_to_dlq"),
}


#: Around a handler nothing has to be done: its lines find out by `names_in_hand`.
_NOTHING: Final = nullcontext()


class LogHook:
    """Fulfils `Hook`: a line for each settled delivery, and its names on all lines meanwhile."""

    def __init__(self) -> None:
        self._lines = OwnLines(NAME)
        name_by(names_in_hand)

    def attempt(self, _delivery: Delivery, /) -> AbstractContextManager[object]:
        """Do nothing."""
        return _NOTHING

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Log *outcome*; costs next to nothing where its level is off."""
        said = said_of(outcome)
        if self._lines.wanted(said.level):
            fields = {**_names(delivery), "outcome": WORDS[type(outcome)], **details(outcome)}
            self._lines.write(said.level, said.event, fields)


def names_in_hand() -> Mapping[str, Any]:
    """The names of the delivery whose code logs here; none outside one."""
    delivery = RUNNING.get()
    return {} if delivery is None else _names(delivery)


def said_of(outcome: Outcome) -> LineFields:
    """Level and event name of *outcome*."""
    if isinstance(outcome, Postponed) and outcome.breaker is not None:
        # Its opening was a warning.
        return LineFields(logging.INFO, "circuit_breaker_open_postponing")
    if isinstance(outcome, Skipped) and outcome.switch is not None:
        return LineFields(logging.WARNING, "event_dropped")
    return _SAID[type(outcome)]


def details(outcome: Outcome) -> dict[str, Any]:
    """The fields that only this kind of outcome has."""
    match outcome:
        case Retried(text=text, seen=seen, delay=delay, max_attempts=most):
            return {
                "max_attempts": most,
                "delay_ms": round(delay.total_seconds() * 1000),
                "error_type": seen.category.value,
                "error_code": seen.code,
                "error": text[:MAX_ERROR],
            }
        case DeadLettered(letter=letter):
            return {
                "reason": letter.reason.value,
                "domain": letter.domain,
                "letter_id": letter.id,
                "error_type": letter.category,
                "error_code": letter.error_code,
                "error": letter.error_message[:MAX_ERROR],
                # As structlog calls it: on a terminal it is shown line by line.
                **({"exception": letter.error_stack[-MAX_STACK:]} if letter.error_stack else {}),
            }
        case Postponed(why=why, delay=delay):
            return {"reason": why, "delay_ms": round(delay.total_seconds() * 1000)}
        case Parked(turn=turn, next_sequence=place):
            return {"sequence": turn.step.sequence, "waits_for": place}
        case Skipped(reason=reason):
            return {"reason": reason[:MAX_ERROR]}
        case _:
            return {}


def _names(delivery: Delivery) -> dict[str, Any]:
    """What every line says of a delivery; `trace_id` is that of its publisher."""
    return {
        "event_id": delivery.event.id,
        "handler": delivery.handler,
        "attempt": delivery.attempt,
        "trace_id": trace_id(delivery.event.traceparent or "") or None,
    }
