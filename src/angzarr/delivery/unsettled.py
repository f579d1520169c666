"""The end of a delivery whose outcome cannot be made true: a letter, or a long wait.

No further try helps here: what follows the event is not publishable, its letter is too large, or
an error of ours repeats. No handler runs again for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.compensation_runner import CompensationRunner
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
from angzarr.delivery.failure_policy import NO_FOLLOWER, UNSETTLED, FailurePolicy
from angzarr.delivery.handlers import Handlers
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import DeliveryError, LetterTooLarge, text_of
from angzarr.resilience.taxonomy import Classification

_log = logging.getLogger("angzarr.delivery")

#: How long an event waits whose letter is larger than its dead-letter queue takes.
TOO_LARGE_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledOutcomes:
    """Replaces outcomes that cannot be made true. Safe to use from many threads."""

    handlers: Handlers
    failure_policy: FailurePolicy
    compensation_runner: CompensationRunner
    in_place: InPlace

    def too_large(self, delivery: Delivery, outcome: Outcome, error: LetterTooLarge) -> Outcome:
        """The postponement of an event whose letter no queue takes: it holds no slot (L4)."""
        _log.critical(
            "letter_too_large: event %s is kept and tried again in %s: %s",
            delivery.event.id, TOO_LARGE_WAIT, error,
        )  # fmt: skip
        claimed = isinstance(outcome, DeadLettered) and outcome.claimed
        return Postponed(delay=TOO_LARGE_WAIT, why=f"letter too large: {error}", claimed=claimed)

    def no_follower(self, delivery: Delivery, outcome: Outcome, error: DeliveryError) -> Outcome:
        """The letter of a delivery whose result, or copy, can never be published."""
        clears = isinstance(outcome, Handled) and outcome.clears
        claimed = _is_claimed(outcome)
        return self._dead(delivery, error, NO_FOLLOWER, clears=clears, claimed=claimed)

    def unsettled(self, delivery: Delivery, outcome: Outcome, error: Exception) -> Outcome:
        """The letter of a delivery of which *error* met each try to make *outcome* true."""
        named = f"its outcome, {WORDS[type(outcome)]}, cannot be made true"
        unsettled = DeliveryError(f"{named}: {type(error).__name__}: {text_of(error)}")
        unsettled.__cause__ = error
        clears = isinstance(outcome, Handled | Skipped) and outcome.clears
        return self._dead(delivery, unsettled, UNSETTLED, clears=clears)

    def _dead(
        self,
        delivery: Delivery,
        error: DeliveryError,
        seen: Classification,
        *,
        clears: bool,
        claimed: bool = True,
    ) -> Outcome:
        handler = self.handlers.get(delivery.handler)
        dead = self.failure_policy.dead(
            delivery, handler, error, Reason.REFUSED, seen, claimed=claimed
        )
        if handler is None or not clears:
            return dead
        retries = partial(
            self.in_place.retrying, delivery, handler, self.failure_policy.clock.now()
        )
        steps = self.compensation_runner.open(delivery, handler, retries)
        self.compensation_runner.meet(steps, left_some=True)
        return self.compensation_runner.after(steps, dead)


def may_become_letter(outcome: Outcome) -> bool:
    """True if a letter may take the place of *outcome*: it is none, and the claim is ours."""
    match outcome:
        case Handled() | Skipped() | Parked() | Retried():
            return True
        case Postponed(claimed=claimed) | Duplicate(claimed=claimed):
            return claimed
        case _:
            return False


def _is_claimed(outcome: Outcome) -> bool:
    """True if the claim is ours: a letter behind a claim of others would not be put."""
    match outcome:
        case Postponed(claimed=claimed) | Duplicate(claimed=claimed):
            return claimed
        case DeadLettered(claimed=claimed):
            return claimed
        case Refused() | Superseded():
            return False
        case _:
            return True
