"""The copy by which a delivery comes again, and when (spec D6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from angzarr.clock import Clock
from angzarr.delivery.delivery import Delivery, Outcome, Postponed, Retried
from angzarr.delivery.schedule import FURTHEST, SLEPT, copy_of
from angzarr.events.event import Message


class ReturnCopy(NamedTuple):
    """The copy of a delivery that comes again."""

    copy: Message
    due_at: datetime


def return_copy(
    delivery: Delivery,
    outcome: Outcome,
    delay: timedelta,
    clock: Clock,
    *,
    attempt: int,
    hop: int,
) -> ReturnCopy:
    """The copy of *delivery* that comes again, and when; a short *delay* has passed then."""
    delay = min(delay, FURTHEST)
    if delay <= SLEPT:
        clock.sleep(delay)
        delay = timedelta(0)
    now = clock.now()
    due_at = now + delay
    seen = replace(
        delivery,
        first_attempt_at=delivery.first_attempt_at or now,
        held_since=_held_since(delivery, outcome, now),
    )
    requeued = outcome.requeued if isinstance(outcome, Retried) else None
    copy = copy_of(seen, attempt=attempt, hop=hop, requeued=requeued)
    return ReturnCopy(copy, due_at)


def _held_since(delivery: Delivery, outcome: Outcome, now: datetime) -> datetime | None:
    """Since when *delivery* will have been held back when its copy comes."""
    match outcome:
        case Postponed(held=True):
            return delivery.held_since or now
        case Postponed(claimed=False):
            return delivery.held_since  # it came early, or another has it: it was not asked for
        case _:
            return None
