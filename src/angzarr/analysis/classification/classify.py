"""Classify: what kind of failure this is, and what to do with it (spec A3). Pure.

The first rule that fits decides. Then come limits that no rule can overrule: a letter that may be
forged is held unread, no replay goes beyond the cap or into an open breaker, no wait is endless,
and old or unsigned failures need a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.analysis.classification.evidence import Evidence, EvidenceItem, ReplayProblem
from angzarr.analysis.classification.rules import (
    ClassificationRule,
    Pause,
    RuleTrial,
    RuleVerdict,
    try_all,
    verdict_of,
)
from angzarr.analysis.classification.verdict_memo import VerdictMemo
from angzarr.analysis.ledger.entry import Entry, FailureClass
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.analysis.replay.compensation import no_compensation
from angzarr.dead_letters.letter import DeadLetter
from angzarr.resilience.backoff import Policy, delay
from angzarr.runtime.fast_init import fast_replace
from angzarr.runtime.text import printable

#: An entry that waits is replayed later; what is too old for that needs a person now.
_RUNS_SOMETHING: Final = frozenset({Action.REPLAY, Action.WAIT, Action.COMPENSATE})
_NOT_COVERED: Final = (
    "its signature does not cover its error, attempts and dates: an older release wrote it, or"
    " somebody removed a part"
)


def _nobody_elses(_failure: Failure) -> str:
    return ""


def _everything(_letter: DeadLetter) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """The limits of what the analysis worker does by itself; a person may do more."""

    #: Since it failed last. Who can write into the queue may put an old letter there again.
    oldest: timedelta
    #: Whether what a letter says of its failure is signed, or need not be.
    vouched: Callable[[DeadLetter], bool] = _everything
    #: Says that another app wrote it, or nothing: not even an archive is decided for that one.
    of_another: Callable[[Failure], str] = _nobody_elses

    def problem(self, failure: Failure, age: timedelta, action: Action = Action.REPLAY) -> str:
        """Why *action* needs a person, or an empty string; *age*: since it failed last."""
        if why := self.of_another(failure):
            return why
        if action is Action.HOLD:
            return ""
        if isinstance(failure, DeadLetter) and not self.vouched(failure):
            return _NOT_COVERED
        if action in _RUNS_SOMETHING and age >= self.oldest:
            return f"it failed {_days(age)} ago, and after {_days(self.oldest)} a person decides"
        return ""


@lru_cache(64)
def _days(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:.3g} days" if days != 1 else "1 day"


#: Entries whose dependency is well again are spread over this, so that they do not make it ill.
SPREAD: Final = timedelta(seconds=30)
#: How long an entry that waits goes without a look, however long its dependency has been ill.
LONGEST_LOOK: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDelays:
    """Spans by a policy and by `chance`, which is in [0, 1)."""

    backoff: Policy
    chance: Callable[[], float]

    def replay(self, number: int) -> timedelta:
        """The pause before replay *number*, from 1."""
        return delay(self.backoff, number, self.chance())

    def soon(self) -> timedelta:
        """A moment within a short while; never longer than the first replay may wait."""
        return min(SPREAD, self.backoff.base) * self.chance()

    def look(self, evidence: Evidence) -> timedelta:
        """The wait until the next look: half its age, but not before it can be over.

        Stateless, so that a look changes nothing but the time of the next one.
        """
        first = max(self.backoff.base, timedelta(seconds=1))
        half = min(max(evidence.age / 2, first), max(LONGEST_LOOK, first))
        retries = [one.retry_at - evidence.now for one in evidence.barring if one.retry_at]
        least = max([half, *(min(one, LONGEST_LOOK) for one in retries)])
        return least * (1 + 0.5 * self.chance())


#: A classifier of others, in place of all rules.
Replacement: TypeAlias = Callable[[Evidence], EntryDecision]
_FALLBACK: Final = RuleVerdict(
    failure_class=FailureClass.UNKNOWN, action=Action.HOLD, evidence="no rule fits"
)


class ExplainedDecision(NamedTuple):
    """A decision, and all that led there."""

    decision: EntryDecision
    #: Every rule in order; empty where none was asked.
    tried: Sequence[RuleTrial]
    #: What overruled the rules, or took their place.
    overruled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """The rules in order, with what limits all of them."""

    rules: Sequence[ClassificationRule]
    pauses: ReplayDelays
    max_replays: int
    #: How long an entry may wait for its dependency before a person is asked.
    longest_wait: timedelta
    #: What needs a person, whatever the rules say.
    unattended: Unattended
    #: Asked instead of the rules, which still stand in where it breaks.
    replacement: Replacement | None = None
    _memo: VerdictMemo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make what asks the rules."""
        object.__setattr__(self, "_memo", VerdictMemo(self.rules))

    def __call__(self, evidence: Evidence) -> EntryDecision:
        """The action, with class and evidence."""
        if evidence.problem is ReplayProblem.DISTRUSTED:
            return _distrusted(evidence)
        verdict, broken = self._verdict(evidence)
        return self._limited(verdict, evidence, broken)[0]

    def explain(self, evidence: Evidence) -> ExplainedDecision:
        """The same decision with all that led there."""
        if evidence.problem is ReplayProblem.DISTRUSTED:
            return ExplainedDecision(_distrusted(evidence), (), "the letter is not to be believed")
        verdict, broken = self._verdict(evidence)
        decision, limit = self._limited(verdict, evidence, broken)
        if self.replacement and not any(one.startswith("the classifier") for one in broken):
            return ExplainedDecision(
                decision, (), limit or "a classifier of yours stands for the rules"
            )
        return ExplainedDecision(decision, try_all(self.rules, evidence), limit)

    def _verdict(self, evidence: Evidence) -> tuple[RuleVerdict, list[str]]:
        broken = []
        if self.replacement is not None:
            try:
                return verdict_of(self.replacement(evidence)), []
            except Exception as error:  # noqa: BLE001 - it is of others and must not stop the worker
                said = f"the classifier of this app failed: {type(error).__name__}: {error}"
                broken = [printable(said[:300])]
        found, more = self._memo.find(evidence)
        return found or _FALLBACK, [*broken, *more]

    def _limited(
        self, verdict: RuleVerdict, evidence: Evidence, broken: Sequence[str]
    ) -> tuple[EntryDecision, str]:
        """The decision as far as it may go, and what overruled the verdict."""
        limited, limit = (
            self._left_to_people(verdict, evidence)
            or _with_compensation(verdict, evidence)
            or self._limit(verdict, evidence)
        )
        said = [limited.evidence, *broken]
        if limited.action is Action.REPLAY:
            said.insert(1, self._used(evidence))
        if limited.action is Action.COMPENSATE:
            said.insert(1, f"undone by {evidence.undone_by}, as {_speaker(limited)} says")
        problem = evidence.target_problem
        if limited.action is Action.HOLD and problem and problem not in limited.evidence:
            said.append(f"it cannot be replayed: {problem}")
        decision = EntryDecision(
            action=limited.action,
            failure_class=limited.failure_class,
            evidence="; ".join(said),
            delay=self._delay(limited, evidence),
        )
        return decision, limit

    def _left_to_people(
        self, verdict: RuleVerdict, evidence: Evidence
    ) -> tuple[RuleVerdict, str] | None:
        why = self.unattended.problem(evidence.failure, evidence.age, verdict.action)
        return _instead(verdict, Action.HOLD, why) if why else None

    def _limit(self, verdict: RuleVerdict, evidence: Evidence) -> tuple[RuleVerdict, str]:
        """Change what a rule wants and may not have; the second says why, or is empty."""
        if verdict.action is Action.REPLAY:
            if evidence.target_problem:
                return _instead(verdict, Action.HOLD, "it cannot be sent")
            if evidence.replays >= self.max_replays:
                return _instead(verdict, Action.HOLD, self._used(evidence))
            if barring := ", ".join(map(str, evidence.barring)):
                verdict, limit = _instead(verdict, Action.WAIT, f"no replay into {barring}")
                over, late = self._limit(verdict, evidence)
                return over, late or limit
        if verdict.action is Action.WAIT:
            if evidence.replays >= self.max_replays:  # nothing would follow
                return _instead(verdict, Action.HOLD, self._used(evidence))
            if evidence.age >= self.longest_wait:
                hours = self.longest_wait.total_seconds() / 3600
                said = f"it waited {hours:g} h and may wait no longer"
                return _instead(verdict, Action.HOLD, said)
        return verdict, ""

    def _used(self, evidence: Evidence) -> str:
        return f"{evidence.replays} of {self.max_replays} replays used"

    def _delay(self, verdict: RuleVerdict, evidence: Evidence) -> timedelta:
        if verdict.action not in {Action.REPLAY, Action.WAIT}:
            return timedelta(0)
        if isinstance(verdict.delay, timedelta):
            return verdict.delay
        if verdict.delay is Pause.SOON:
            return self.pauses.soon()
        if verdict.action is Action.REPLAY:
            return self.pauses.replay(evidence.replays + 1)
        return self.pauses.look(evidence)


def _with_compensation(verdict: RuleVerdict, evidence: Evidence) -> tuple[RuleVerdict, str] | None:
    """Hold what is to be compensated by nothing; None: it is not, or there is something."""
    if verdict.action is not Action.COMPENSATE or evidence.undone_by:
        return None
    missing = no_compensation(evidence.letter.handler if evidence.letter else "")
    said = f"{_speaker(verdict)} would have it compensated, and {missing}"
    return _instead(verdict, Action.HOLD, said)


def _speaker(verdict: RuleVerdict) -> str:
    return f"rule {verdict.rule}" if verdict.rule else "the classifier of this app"


def _instead(verdict: RuleVerdict, action: Action, why: str) -> tuple[RuleVerdict, str]:
    said = f"{verdict.evidence}; {why}" if verdict.evidence else why
    return fast_replace(verdict, action=action, evidence=said, delay=Pause.BACKOFF), why


def _distrusted(evidence: Evidence) -> EntryDecision:
    """Hold an entry that may be forged: its reason cannot be trusted either."""
    return EntryDecision(
        action=Action.HOLD,
        failure_class=FailureClass.DATA_CORRUPTION,
        evidence=evidence.target_problem,
    )


def explanation_json(
    entry: Entry, found: ExplainedDecision, told: Sequence[EvidenceItem]
) -> dict[str, Any]:
    """The same as a JSON object."""
    decision, rule = found.decision, deciding(found.tried)
    return {
        "id": entry.id,
        "status": entry.status,
        "failure_class": entry.failure_class,
        "now": {
            "failure_class": decision.failure_class,
            "action": decision.action,
            "delay": decision.delay.total_seconds(),
            "evidence": decision.evidence,
            "rule": rule.rule.name if rule else None,
            "overruled": found.overruled or None,
        },
        "rules": [_rule_json(tried, rule) for tried in found.tried],
        "evidence": [
            {"name": name, "says": says, "source": source, "at": at, "known": says is not None}
            for name, says, source, at in told
        ],
    }


def deciding(tried: Sequence[RuleTrial]) -> RuleTrial | None:
    """The first rule that fits."""
    return next((one for one in tried if one.verdict is not None), None)


def _rule_json(tried: RuleTrial, chosen: RuleTrial | None) -> dict[str, Any]:
    verdict = tried.verdict
    return {
        "name": tried.rule.name,
        "source": tried.rule.source,
        "fits": verdict is not None,
        "decides": tried is chosen,
        "failure_class": verdict and verdict.failure_class,
        "action": verdict and verdict.action,
        "because": tried.why,
        "failed": tried.failed,
    }
