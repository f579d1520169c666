"""Explanation: which policy a failure gets, and all that led there. A value; it prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from angzarr.resilience.backoff import BackoffWait, Policy, waits
from angzarr.resilience.policy_rules import PolicyCase, PolicyRule, TriedRule
from angzarr.resilience.taxonomy import Category, Classification, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Which policy a failure gets, and all that led there."""

    case: PolicyCase
    #: The rules in the order in which they are tried.
    tried: Sequence[TriedRule]
    #: What the other side asks for.
    least: timedelta | None = None
    #: What kind of error it is, and what is done about such; None: no error was named.
    seen: Classification | None = None
    #: One of the class that was named, which says nothing but its class.
    error: BaseException | None = None
    verdict: Verdict | None = None

    @property
    def rule(self) -> PolicyRule:
        """The rule that decides."""
        return next(rule for rule, missed in self.tried if missed is None)

    @property
    def policy(self) -> Policy:
        """The policy it gives."""
        return self.rule.policy

    @property
    def end(self) -> str:
        """Why such an error is not retried; empty: it is."""
        if self.seen is None or self.verdict is None:
            return ""
        if self.verdict is not Verdict.RETRY:
            end = "skipped" if self.verdict is Verdict.SKIP else "a dead letter"
            return f"{self.seen.category} errors are not retried, whatever the policy: {end}"
        if not self.policy.retries(self.seen.category, self.error):
            return self._not_retried(self.seen.category)
        if self.policy.max_attempts == 1:
            return f"{self.policy.name} allows one run: a dead letter"
        return ""

    def _not_retried(self, category: Category) -> str:
        if not self.policy.retry_errors:
            return f"{self.policy.name} does not retry {category} errors: a dead letter"
        only = ", ".join(self.policy.retried or ())
        which = "" if self.error is not None else ", and which class it is was not said"
        return f"{self.policy.name} retries {only} alone{which}: a dead letter"

    @property
    def waits(self) -> list[BackoffWait]:
        """What would be waited if every run fails like this, to the first that is too long."""
        rows = [] if self.end else list(waits(self.policy, self.least))
        late = next((n for n, row in enumerate(rows) if self.in_time(row) is False), len(rows))
        return rows[: late + 1]

    def in_time(self, row: BackoffWait) -> bool | None:
        """Tell whether the run after *row* begins before the deadline; None: that is chance."""
        left = self.case.time_left
        if left is None or row.ends_latest < left:
            return True
        return False if row.ends_earliest >= left else None

    def why(self, tried: TriedRule) -> str:
        """Say in words what became of a rule."""
        if tried.rule is self.rule:
            return "decides"
        if tried.missed is None:
            return "fits, but comes later in this order"
        name = tried.missed.name
        found = getattr(self.case, name)
        if isinstance(found, timedelta):
            return f"{span_of(found)} is left"
        nothing = {"category": "no error yet", "time_left": "no deadline"}
        return f"{name} is {found}" if found else nothing.get(name, f"no {name}")


def span_of(span: timedelta) -> str:
    """Return *span* in words: ``1 min 30 s``."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:g} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g} s"
    hours, left = divmod(round(seconds), 3600)
    minutes, left = divmod(left, 60)
    parts = ((hours, "h"), (minutes, "min"), (left, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)
