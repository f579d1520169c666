"""Road: decide, then settle. What a worker calls for each delivery before it acknowledges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.delivery import (
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
from angzarr.delivery.failure_policy import POISON
from angzarr.delivery.invoke import Hooks
from angzarr.delivery.letter_builder import write_last_words
from angzarr.delivery.pipeline import Pipeline
from angzarr.delivery.poison_wave import PoisonWaveBreaker
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.settle import Settler
from angzarr.errors import DeliveryError, GivenBack, LetterTooLarge
from angzarr.resilience.idempotency import Complete, IdempotencyStore, Release
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.delivery")

#: How long an event waits whose letter is larger than its dead-letter queue takes.
TOO_LARGE_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryExecutor:
    """The whole road of one event within one process."""

    pipeline: Pipeline
    settler: Settler
    store: IdempotencyStore
    hold: RetryUntilAvailable
    hooks: Hooks
    #: The guard against poison waves; None where only what cannot be handled is settled.
    waves: PoisonWaveBreaker | None = None
    #: Whether the worker begins nothing any more (16); who settles in the parent begins nothing.
    closed: Callable[[], bool] = lambda: False

    def take(self, delivery: Delivery, failed: Exception | None = None) -> Outcome | None:
        """Return the outcome once it is true: the message may be acknowledged.

        *failed* is what went wrong before the handler could be called; it counts as its error.

        None means that a successor owns the event (decisions 11): acknowledge and say nothing.
        Raises GivenBack, and nothing else, when the message must not be acknowledged: the
        worker stops before the handler began or while a server is away, its grace ended while
        the handler ran, or something broke that none of us foresaw.
        """
        if failed is None and self.closed():
            self._give_back_unbegun(delivery)
        try:
            outcome = self._settled(delivery, self._decide(delivery, failed))
        except GivenBack:
            self.release(delivery, counted=False)
            raise
        except Interrupt as cut:
            _log.warning("cut_short: event %s, it runs again elsewhere", delivery.event.id)
            self.release(delivery, counted=False)
            msg = "its worker's grace has ended"
            raise GivenBack(msg) from cut
        except Exception as error:
            # A time limit between two steps, or a bug. The start stays counted, so that what
            # breaks every time ends as a letter and not as a loop; but not if the process lacks
            # memory, threads or files, of which the event knows nothing, nor where no handler was
            # to run: its letter would say poison and not what ended it.
            _log.exception("given_back: event %s could not be settled", delivery.event.id)
            self.release(delivery, counted=failed is None and not is_machine_fault(error))
            msg = f"the delivery broke off: {error!r}"
            raise GivenBack(msg) from error
        if outcome is not None:
            self.hooks.settled(delivery, outcome)
        return outcome

    def _decide(self, delivery: Delivery, failed: Exception | None) -> Outcome:
        if self.waves is None:
            return self.pipeline.decide(delivery, failed)
        entered = self.waves.enter(delivery)
        if isinstance(entered, Postponed):
            return entered
        try:
            outcome = self.pipeline.decide(delivery, failed)
        except BaseException:
            self.waves.forgo(entered)
            raise
        return self.waves.judged(delivery, outcome, entered)

    def _give_back_unbegun(self, delivery: Delivery) -> NoReturn:
        if delivery.rides:  # else it has no claim yet
            self.release(delivery, counted=False)
        msg = "the worker stops, and had not begun with it"
        raise GivenBack(msg)

    def _settled(self, delivery: Delivery, outcome: Outcome) -> Outcome | None:
        """Return the outcome that was made true, None if a successor owns the event."""
        try:
            ours = self._hold(delivery, outcome)
        except LetterTooLarge as error:
            outcome = _kept(delivery, outcome, error)
            ours = self._hold(delivery, outcome)
        except DeliveryError as error:  # what follows this event can never be published
            clears = isinstance(outcome, Handled) and outcome.clears
            dead = self.pipeline.no_follower(
                delivery, error, clears=clears, claimed=_is_claimed(outcome)
            )
            return self._settled(delivery, dead)
        except GivenBack:
            raise
        except Exception as error:
            # No further try will make it true. A letter may be: it runs no handler once more.
            if not _holds_event(outcome) or is_machine_fault(error):
                raise
            return self._settled(delivery, self.pipeline.unsettled(delivery, outcome, error))
        return outcome if ours else None

    def _hold(self, delivery: Delivery, outcome: Outcome) -> bool:
        return self.hold.until_done(
            lambda: self.settler.settle(delivery, outcome),
            what="settle it",
            delivery=delivery,
        )

    def complete(self, delivery: Delivery, completion: Complete) -> None:
        """Complete *delivery* here; raises GivenBack if the worker stops first."""
        self.hold.until_done(
            lambda: self.settler.complete(delivery, completion),
            what="complete it",
            delivery=delivery,
        )

    def close(self) -> None:
        """Write what is held back and close connections."""
        self.settler.close()

    def release_dying(self, delivery: Delivery, error: BaseException) -> None:
        """End the claim of a run that *error* ends together with its process, or with its thread.

        Its start counts. If none settles, the letter says what ended the last of them.
        """
        letter = self.pipeline.judge.autopsy.letter(delivery, None, error, Reason.POISON, POISON)
        self.release(delivery, counted=True, last_words=write_last_words(letter))

    def release(self, delivery: Delivery, *, counted: bool, last_words: str = "") -> None:
        """End the claim (decisions 4); where the store is away the owner's lease ends it."""
        try:
            release = Release(
                counted=counted, was_counted=not delivery.rides, last_words=last_words
            )
            self.store.settle(delivery.key, delivery.token, release)
        except Exception as error:  # noqa: BLE001 - the message is given back whatever happens here
            _log.warning("claim_not_released of event %s: %s", delivery.event.id, error)


def _holds_event(outcome: Outcome) -> bool:
    """Tell whether a letter may take the place of *outcome*: it is none, and the claim is ours."""
    match outcome:
        case Handled() | Skipped() | Parked() | Retried():
            return True
        case Postponed(claimed=claimed) | Duplicate(claimed=claimed):
            return claimed
        case _:
            return False


def _is_claimed(outcome: Outcome) -> bool:
    """Tell whether the claim is ours: a letter behind a claim of others would not be put."""
    match outcome:
        case Postponed(claimed=claimed) | Duplicate(claimed=claimed):
            return claimed
        case DeadLettered(claimed=claimed):
            return claimed
        case Refused() | Superseded():
            return False
        case _:
            return True


def _kept(delivery: Delivery, outcome: Outcome, error: LetterTooLarge) -> Postponed:
    """Return what keeps an event whose letter no queue takes: it holds no slot meanwhile (L4)."""
    _log.critical(
        "letter_too_large: event %s is kept and tried again in %s: %s",
        delivery.event.id, TOO_LARGE_WAIT, error,
    )  # fmt: skip
    claimed = isinstance(outcome, DeadLettered) and outcome.claimed
    return Postponed(delay=TOO_LARGE_WAIT, why=f"letter too large: {error}", claimed=claimed)
