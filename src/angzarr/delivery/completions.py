"""Completions that go with an acknowledgement, and the bodies that endings release (spec F4)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from angzarr.delivery.claims import SKIPPED
from angzarr.delivery.delivery import Delivery, Handled, Outcome, Skipped
from angzarr.events.event import digest
from angzarr.payloads.claim_check import check_in
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


def left_behind(delivery: Delivery, body: bytes) -> PayloadHold | None:
    """The hold on the body of *delivery*, whose copy has another *body*; None: it is the same one.

    The copy is published before the claim ends, and may have registered that very hold again.
    """
    hold = delivery.hold
    check = None if hold is None else check_in(delivery.message.headers)
    if check is None or check.key:  # a keyed digest compares with no other
        return None
    try:
        args, kwargs, _embed = json.loads(body)
    except (ValueError, TypeError, RecursionError):
        return None  # it is kept for longer than it must be, which is no harm
    return None if digest([args, kwargs]) == check.digest else hold
