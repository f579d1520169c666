"""Judge: what becomes of a delivery whose handler failed. By rule and policy, touching nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from angzarr.clock import Clock
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.autopsy import Autopsy
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.outcome import DeadLettered, Outcome, Retried, Skipped
from angzarr.errors import RetryLater, text_of
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.policies import choose
from angzarr.resilience.taxonomy import (
    Classification,
    Rule,
    Verdict,
    VerdictRule,
    classify,
    verdict_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Knows the app's rules; each handler brings its own, which come first."""

    autopsy: Autopsy
    clock: Clock
    chance: Callable[[], float]
    policies: Mapping[str, Policy]
    default_policy: str = "default"
    rules: tuple[Rule, ...] = ()
    verdicts: tuple[VerdictRule, ...] = ()

    def policy(self, delivery: Delivery, handler: Handler) -> Policy:
        """Return the backoff policy: the handler's, else by the event's priority (spec D3)."""
        if handler.policy is not None:
            return handler.policy
        return choose(self.policies, priority=delivery.event.priority, default=self.default_policy)

    def failed(
        self, delivery: Delivery, handler: Handler, error: Exception
    ) -> tuple[Outcome, Classification]:
        """Return what becomes of *delivery* after *error*, and what kind of error it is."""
        seen = self._classify(delivery, handler, _cause(error))
        return self._judge(delivery, handler, error, seen), seen

    def dead(
        self,
        delivery: Delivery,
        handler: Handler | None,
        error: Exception,
        reason: Reason,
        seen: Classification,
        *,
        claimed: bool = True,
    ) -> DeadLettered:
        """Return a dead letter as the outcome."""
        letter = self.autopsy.letter(delivery, handler, error, reason, seen)
        return DeadLettered(letter=letter, error=error, claimed=claimed)

    def _classify(self, delivery: Delivery, handler: Handler, error: Exception) -> Classification:
        return classify(
            error,
            handler.rules,
            self.rules,
            now=self.clock.now(),
            handler=handler.name,
            event_type=delivery.event.type,
        )

    def _judge(
        self, delivery: Delivery, handler: Handler, error: Exception, seen: Classification
    ) -> Outcome:
        if isinstance(error, RetryLater):
            return self._retry_as_asked(delivery, handler, error, seen)
        verdict = verdict_for(
            seen.category,
            (*self.verdicts, *handler.verdicts),
            event_type=delivery.event.type,
            idempotent=handler.idempotent,
        )
        if verdict is Verdict.SKIP:
            return Skipped(reason=f"{seen.category}: {text_of(error)}", seen=seen)
        if verdict is Verdict.DEAD_LETTER:
            return self.dead(delivery, handler, error, Reason.REFUSED, seen)
        policy = self.policy(delivery, handler)
        if not policy.retries(seen.category):
            return self.dead(delivery, handler, error, Reason.REFUSED, seen)
        delay = next_delay(policy, delivery.attempt, self.chance(), seen.retry_after)
        if delay is None:
            return self.dead(delivery, handler, error, Reason.EXHAUSTED, seen)
        return Retried(delay=delay, error=error, seen=seen, max_attempts=policy.max_attempts)

    def _retry_as_asked(
        self, delivery: Delivery, handler: Handler, asked: RetryLater, seen: Classification
    ) -> Outcome:
        """Retry what the handler asked to retry, whatever the taxonomy thinks of it."""
        policy = self.policy(delivery, handler)
        most = policy.max_attempts if asked.max_attempts is None else asked.max_attempts
        if most and delivery.attempt >= most:
            return self.dead(delivery, handler, _cause(asked), Reason.EXHAUSTED, seen)
        delay = asked.delay
        if delay is None:
            endless = replace(policy, max_attempts=delivery.attempt + 1)
            delay = next_delay(endless, delivery.attempt, self.chance(), seen.retry_after)
        return Retried(
            delay=delay or timedelta(0),
            error=_cause(asked),
            seen=seen,
            max_attempts=most,
            body=asked.body,
        )


def _cause(error: Exception) -> Exception:
    """Return what the handler's own `RetryLater` was raised for, or the error itself."""
    return (isinstance(error, RetryLater) and error.cause) or error
