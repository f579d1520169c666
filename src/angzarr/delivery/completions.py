"""Completions that go with an acknowledgement, and the bodies that endings release (spec F4)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from angzarr.delivery.claims import SKIPPED
from angzarr.delivery.delivery import Delivery, Handled, Outcome, Skipped
from angzarr.payloads.holders import PayloadHold
from angzarr.resilience.idempotency import Complete


class LeftCompletion(NamedTuple):
    """A completion that goes with the acknowledgement, and the lines of facts that it keeps."""

    completion: Complete
    facts: tuple[str, ...] = ()


def completion_of(outcome: Outcome | None) -> Complete | None:
    """The completion that *outcome* leaves of a claim, or None."""
    match outcome:
        case Handled(result=result):
            return Complete(result=result)
        case Skipped():
            return Complete(result=SKIPPED)
        case _:
            return None


def left_to_ack(delivery: Delivery, outcome: Outcome | None) -> Complete | None:
    """The completion that goes with the acknowledgement of *delivery*, or None."""
    if not is_left_to_ack(delivery, outcome):
        return None
    completion = completion_of(outcome)
    if completion is None or not delivery.is_elsewhere:
        return completion
    return replace(completion, releases=delivery.hold)


def is_left_to_ack(delivery: Delivery, outcome: Outcome | None) -> bool:
    """True if the claim's end goes with the acknowledgement of *delivery*.

    Only where the claim came with the fetch (4) and the acknowledgement follows at once, and only
    of a plain success: whatever else happened is settled where it happened.
    """
    if not (delivery.claimed_with_fetch and delivery.ack_follows):
        return False
    if isinstance(outcome, Handled):
        return outcome.raised is None and not outcome.clears
    return isinstance(outcome, Skipped) and not outcome.clears


def left_behind(delivery: Delivery, again: Delivery) -> PayloadHold | None:
    """The hold of *delivery* that *again*, which takes its place, does not need; None: none.

    A copy whose body is stored under the same name, for the same arguments, has the very same hold.
    """
    hold = delivery.hold
    return None if hold == again.hold else hold
