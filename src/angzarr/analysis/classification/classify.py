"""Classify: what kind of failure this is, and what to do with it (spec A3). Pure.

The first rule that fits speaks, and then what no rule can overrule: a letter that may be forged is
held unread, no replay beyond the cap or into an open breaker, no wait without end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from angzarr.analysis.classification.evidence import Evidence, Problem
from angzarr.analysis.classification.replay_delays import Pauses
from angzarr.analysis.classification.rule_index import Sieve
from angzarr.analysis.classification.rules import (
    Pause,
    Rule,
    Tried,
    Verdict,
    decide,
    try_all,
    verdict_of,
)
from angzarr.analysis.classification.unattended import Unattended
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action, Decision
from angzarr.analysis.replay.compensation import no_compensation
from angzarr.runtime.text import printable

#: A classifier of others, in place of all rules.
Replacement: TypeAlias = Callable[[Evidence], Decision]
_FALLBACK: Final = Verdict(
    failure_class=FailureClass.UNKNOWN, action=Action.HOLD, evidence="no rule fits"
)


class Explanation(NamedTuple):
    """A decision, and all that led there."""

    decision: Decision
    #: Every rule in order; empty where none was asked.
    tried: Sequence[Tried]
    #: What overruled the rules, or took their place.
    overruled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """The rules in order, with what limits all of them."""

    rules: Sequence[Rule]
    pauses: Pauses
    max_replays: int
    #: How long an entry may wait for its dependency before a person is asked.
    longest_wait: timedelta
    #: What needs a person, whatever the rules say.
    unattended: Unattended
    #: Asked instead of the rules, which still stand in where it breaks.
    replacement: Replacement | None = None
    _sieve: Sieve = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make what finds the rules that are worth trying."""
        object.__setattr__(self, "_sieve", Sieve(self.rules))

    def __call__(self, evidence: Evidence) -> Decision:
        """Return what to do, with class and evidence."""
        if evidence.problem is Problem.DISTRUSTED:
            return _distrusted(evidence)
        verdict, broken = self._verdict(evidence)
        return self._limited(verdict, evidence, broken)[0]

    def explain(self, evidence: Evidence) -> Explanation:
        """Return the same decision with all that led there."""
        if evidence.problem is Problem.DISTRUSTED:
            return Explanation(_distrusted(evidence), (), "the letter is not to be believed")
        verdict, broken = self._verdict(evidence)
        decision, limit = self._limited(verdict, evidence, broken)
        if self.replacement and not any(one.startswith("the classifier") for one in broken):
            return Explanation(decision, (), limit or "a classifier of yours stands for the rules")
        return Explanation(decision, try_all(self.rules, evidence), limit)

    def _verdict(self, evidence: Evidence) -> tuple[Verdict, list[str]]:
        broken = []
        if self.replacement is not None:
            try:
                return verdict_of(self.replacement(evidence)), []
            except Exception as error:  # noqa: BLE001 - it is of others and must not stop the worker
                said = f"the classifier of this app failed: {type(error).__name__}: {error}"
                broken = [printable(said[:300])]
        found, more = decide(self._sieve.rules_for(evidence), evidence)
        return found or _FALLBACK, [*broken, *more]

    def _limited(
        self, verdict: Verdict, evidence: Evidence, broken: Sequence[str]
    ) -> tuple[Decision, str]:
        """Return the decision as far as it may go, and what overruled the verdict."""
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
        decision = Decision(
            action=limited.action,
            failure_class=limited.failure_class,
            evidence="; ".join(said),
            delay=self._delay(limited, evidence),
        )
        return decision, limit

    def _left_to_people(self, verdict: Verdict, evidence: Evidence) -> tuple[Verdict, str] | None:
        why = self.unattended.problem(evidence.failure, evidence.age, verdict.action)
        return _instead(verdict, Action.HOLD, why) if why else None

    def _limit(self, verdict: Verdict, evidence: Evidence) -> tuple[Verdict, str]:
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

    def _delay(self, verdict: Verdict, evidence: Evidence) -> timedelta:
        if verdict.action not in {Action.REPLAY, Action.WAIT}:
            return timedelta(0)
        if isinstance(verdict.delay, timedelta):
            return verdict.delay
        if verdict.delay is Pause.SOON:
            return self.pauses.soon()
        if verdict.action is Action.REPLAY:
            return self.pauses.replay(evidence.replays + 1)
        return self.pauses.look(evidence)


def _with_compensation(verdict: Verdict, evidence: Evidence) -> tuple[Verdict, str] | None:
    """Hold what is to be compensated by nothing; None: it is not, or there is something."""
    if verdict.action is not Action.COMPENSATE or evidence.undone_by:
        return None
    missing = no_compensation(evidence.letter.handler if evidence.letter else "")
    said = f"{_speaker(verdict)} would have it compensated, and {missing}"
    return _instead(verdict, Action.HOLD, said)


def _speaker(verdict: Verdict) -> str:
    return f"rule {verdict.rule}" if verdict.rule else "the classifier of this app"


def _instead(verdict: Verdict, action: Action, why: str) -> tuple[Verdict, str]:
    said = f"{verdict.evidence}; {why}" if verdict.evidence else why
    return replace(verdict, action=action, evidence=said, delay=Pause.BACKOFF), why


def _distrusted(evidence: Evidence) -> Decision:
    """Hold what somebody may have forged: not even its reason is to be believed."""
    return Decision(
        action=Action.HOLD,
        failure_class=FailureClass.DATA_CORRUPTION,
        evidence=evidence.target_problem,
    )
