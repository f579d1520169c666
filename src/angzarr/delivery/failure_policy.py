"""FailurePolicy: what becomes of a delivery whose handler failed, by rule and policy (spec D2, D3).

It touches nothing. What the executor itself finds wrong with a delivery is classified here, in the
taxonomy's words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from angzarr.clock import Clock
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Delivery, Outcome, Retried, Skipped
from angzarr.delivery.handlers import Handler
from angzarr.delivery.letter_builder import DeadLetterBuilder, EndOfLastRun, read_last_words
from angzarr.errors import (
    CircuitOpenError,
    DeliveryError,
    ExpiredError,
    IdempotencyConflictError,
    LimitExceededError,
    PoisonError,
    Postpone,
    RetryBudgetSpentError,
    RetryLater,
    RevokedError,
    text_of,
)
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.idempotency import Claimed
from angzarr.resilience.policy_rules import PolicyCase, PolicyRules
from angzarr.resilience.taxonomy import (
    Category,
    Classification,
    Rule,
    Verdict,
    VerdictRule,
    classify,
    verdict_for,
)

GIVEN_UP = Classification(category=Category.CLIENT, code="GIVEN_UP", reason="the handler said so")
UNREADABLE = Classification(
    category=Category.CLIENT, code="UNDELIVERABLE", reason="the message does not fit its handler"
)
NO_HANDLER = Classification(
    category=Category.CLIENT, code="UNKNOWN_TASK", reason="no handler of this name here"
)
POISON = Classification(
    category=Category.UNKNOWN, code="POISON", reason="starts that were not settled"
)
CONFLICT = Classification(
    category=Category.INTEGRITY, code="IDEMPOTENCY_CONFLICT", reason="one key, two bodies"
)
NO_FOLLOWER = Classification(
    category=Category.CLIENT, code="UNFOLLOWABLE", reason="its result cannot be handed on"
)
UNSETTLED = Classification(
    category=Category.UNKNOWN, code="UNSETTLED", reason="what became of it cannot be made true"
)
REVOKED = Classification(
    category=Category.CLIENT, code="REVOKED", reason="somebody revoked the task"
)
EXPIRED = Classification(
    category=Category.CLIENT, code="EXPIRED", reason="it arrived after its publisher's expiry"
)


def too_old(error: DeliveryError) -> Classification:
    """The classification of a delivery that waited longer than its maximum age, for *error*."""
    return Classification(
        category=Category.EXTERNAL,
        code=_WAITED_FOR[type(error)],
        reason="waited longer than its maximum age",
    )


_WAITED_FOR: dict[type[DeliveryError], str] = {
    CircuitOpenError: "CIRCUIT_OPEN",
    RetryBudgetSpentError: "RETRY_BUDGET_SPENT",
    LimitExceededError: "LIMIT_EXCEEDED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """Knows the app's rules; each handler brings its own, which come first."""

    letter_builder: DeadLetterBuilder
    clock: Clock
    chance: Callable[[], float]
    policies: PolicyRules
    rules: tuple[Rule, ...] = ()
    verdicts: tuple[VerdictRule, ...] = ()

    def policy(
        self, delivery: Delivery, handler: Handler, category: Category | None = None
    ) -> Policy:
        """The backoff policy, as the most specific rule says (spec D3).

        *category* is that of the error; before there is one, rules for categories do not hold.
        """
        plan = self.policies.plans.get(handler.name) or self.policies.plan(
            handler.name,
            operation=handler.operation,
            domain=handler.domain,
            own=handler.policy,
            by_type=handler.policies,
        )
        event = delivery.event
        return plan.quick(event.priority) or plan.choose(
            PolicyCase(
                handler=handler.name,
                operation=handler.operation,
                event_type=event.type,
                tenant=event.tenant_id,
                category=category,
                domain=handler.domain or event.domain,
                priority=event.priority,
                time_left=self._time_left(delivery),
            )
        )

    def _time_left(self, delivery: Delivery) -> timedelta | None:
        """The time until *delivery*'s message expires, negative afterwards; None: never."""
        if delivery.expires_at is None:
            return None
        return delivery.expires_at - self.clock.now()

    def failed(
        self, delivery: Delivery, handler: Handler, error: Exception
    ) -> tuple[Outcome, Classification]:
        """The outcome of *delivery* after *error*, and the classification of the error."""
        seen = self.classify(delivery, handler, cause_of(error))
        return self._decide(delivery, handler, error, seen), seen

    def exhausted(
        self, delivery: Delivery, handler: Handler, error: Exception
    ) -> tuple[Outcome, Classification]:
        """The same where the run knew that it had no retry left: nothing is tried again."""
        if isinstance(error, RetryLater):
            return self.failed(delivery, handler, error)  # it asks for another run all the same
        outcome, seen = self.failed(delivery, handler, error)
        if isinstance(outcome, Skipped):
            return outcome, seen
        return self.dead(delivery, handler, error, Reason.EXHAUSTED, seen), seen

    def is_final(self, delivery: Delivery, handler: Handler, error: Exception) -> bool:
        """True if *error* would end *delivery*: nothing follows, be it an attempt or not."""
        if isinstance(cause_of(error), Postpone | CircuitOpenError):
            return False  # to wait uses no attempt
        return not isinstance(self.failed(delivery, handler, error)[0], Retried)

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
        """A dead letter as the outcome."""
        letter = self.letter_builder.letter(delivery, handler, error, reason, seen)
        return DeadLettered(letter=letter, error=error, claimed=claimed)

    def ended(self, delivery: Delivery, handler: Handler, error: Exception) -> Outcome:
        """The outcome of *delivery*, which *error* ended and not its handler's return."""
        match error:
            case RevokedError():
                return self.dead(delivery, handler, error, Reason.REVOKED, REVOKED)
            case ExpiredError():
                return self.dead(delivery, handler, error, Reason.TOO_OLD, EXPIRED)
            case _:
                return self.failed(delivery, handler, error)[0]

    def conflict(self, delivery: Delivery, handler: Handler) -> DeadLettered:
        """The letter of an event whose id was used before for another body."""
        error = IdempotencyConflictError(
            f"event id {delivery.event.id!r} was used before for another body"
        )
        return self.dead(delivery, handler, error, Reason.CONFLICT, CONFLICT, claimed=False)

    def poisoned(self, delivery: Delivery, handler: Handler, claimed: Claimed) -> DeadLettered:
        """The letter of an event that was started too often and never settled."""
        last = read_last_words(claimed.last_words)
        error = PoisonError(
            f"started {claimed.starts - 1} times and never finished: it kills its worker, or is"
            " cut short" + (f"; the last run ended by {last.error}" if last else "")
        )
        if last:
            error.__cause__ = EndOfLastRun(last.stack)
        return self.dead(delivery, handler, error, Reason.POISON, POISON)

    def unreadable(
        self,
        delivery: Delivery,
        handler: Handler | None,
        error: Exception,
        seen: Classification,
    ) -> DeadLettered:
        """The letter of a delivery that no handler can take, or that none is there for."""
        return self.dead(
            delivery,
            handler,
            error,
            Reason.UNDELIVERABLE,
            seen,
            claimed=delivery.claimed_with_fetch,
        )

    def classify(self, delivery: Delivery, handler: Handler, error: Exception) -> Classification:
        """The classification of *error*, by the handler's rules and the app's."""
        return classify(
            error,
            handler.rules,
            self.rules,
            now=self.clock.now(),
            handler=handler.name,
            event_type=delivery.event.type,
        )

    def verdict(
        self, delivery: Delivery, handler: Handler, category: Category, *, named: bool = False
    ) -> Verdict:
        """The verdict on errors of *category*; *named*: the policy names its type."""
        return verdict_for(
            category,
            (*self.verdicts, *handler.verdicts),
            event_type=delivery.event.type,
            idempotent=handler.idempotent,
            named=named,
        )

    def _decide(
        self, delivery: Delivery, handler: Handler, error: Exception, seen: Classification
    ) -> Outcome:
        if isinstance(error, RetryLater):
            return self._retry_as_asked(delivery, handler, error, seen)
        policy = self.policy(delivery, handler, seen.category)
        verdict = self.verdict(delivery, handler, seen.category, named=policy.names(error))
        if verdict is Verdict.SKIP:
            said = self.letter_builder.shown(delivery, error, seen)
            text = text_of(error) if said is None else said
            return Skipped(reason=f"{seen.category}: {text}", seen=seen)
        if verdict is Verdict.DEAD_LETTER:
            return self.dead(delivery, handler, error, Reason.REFUSED, seen)
        if not policy.retries(seen.category, error):
            return self.dead(delivery, handler, error, Reason.REFUSED, seen)
        delay = next_delay(policy, delivery.attempt, self.chance(), seen.retry_after)
        if delay is None:
            return self.dead(delivery, handler, error, Reason.EXHAUSTED, seen)
        return self._retried(
            delivery,
            handler,
            Retried(delay=delay, error=error, seen=seen, max_attempts=policy.max_attempts),
        )

    def _retry_as_asked(
        self, delivery: Delivery, handler: Handler, asked: RetryLater, seen: Classification
    ) -> Outcome:
        """Retry what the handler asked to retry, whatever the taxonomy thinks of it."""
        policy = self.policy(delivery, handler, seen.category)
        most = policy.max_attempts if asked.max_attempts is None else asked.max_attempts
        if most and delivery.attempt >= most:
            return self.dead(delivery, handler, cause_of(asked), Reason.EXHAUSTED, seen)
        delay = asked.delay
        if delay is None:
            endless = replace(policy, max_attempts=delivery.attempt + 1)
            delay = next_delay(endless, delivery.attempt, self.chance(), seen.retry_after)
        retried = Retried(
            delay=delay or timedelta(0),
            error=cause_of(asked),
            seen=seen,
            max_attempts=most,
            body=asked.body,
            requeued=asked.requeued,
        )
        return self._retried(delivery, handler, retried)

    def _retried(self, delivery: Delivery, handler: Handler, retried: Retried) -> Outcome:
        """*retried*, or a letter where its run would begin after the message expired."""
        left = self._time_left(delivery)
        if left is None or retried.delay < left:
            shown = self.letter_builder.shown(delivery, retried.error, retried.seen)
            return retried if shown is None else replace(retried, shown=shown)
        return self.dead(delivery, handler, retried.error, Reason.OUT_OF_TIME, retried.seen)


def cause_of(error: Exception) -> Exception:
    """The cause of the handler's own `RetryLater`, or the error itself."""
    return (isinstance(error, RetryLater) and error.cause) or error
