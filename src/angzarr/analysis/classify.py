"""Classify: what kind of failure this is, and what to do with it (spec A3). Pure.

Rules are tried in order and the first that speaks decides. These are the first ones: what may
pass by itself is replayed with a pause and a cap, what could not be read is archived, all else
waits for a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeAlias

from angzarr.analysis.entry import Failure, FailureClass, Unreadable
from angzarr.analysis.replay import was_revoked
from angzarr.analysis.transition import Action, Decision
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.refusal import Distrusted
from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import Category, retryable

#: How often an event is replayed by itself (spec A4).
MAX_REPLAYS: Final = 3
#: The pause before each replay.
REPLAY_BACKOFF: Final = Policy(
    name="replay",
    base=timedelta(seconds=30),
    max_delay=timedelta(hours=1),
    max_attempts=MAX_REPLAYS + 1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known when an entry is classified; the I/O behind it is done."""

    failure: Failure
    #: Replays begun so far, a person's included.
    replays: int = 0
    #: Why the message cannot be sent to where it came from; empty: it can.
    target_problem: str = ""


Rule: TypeAlias = Callable[[DeadLetter, Situation], Decision | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """The rules with their settings; `delay` gives the pause before replay number n, from 1."""

    delay: Callable[[int], timedelta]
    max_replays: int = MAX_REPLAYS

    def __call__(self, situation: Situation) -> Decision:
        """Return what to do, with class and evidence."""
        failure = situation.failure
        if isinstance(failure, Unreadable):
            return _archive(f"the letter could not be read: {failure.problem}")
        for rule in (_distrusted, *_BY_REASON, self._retryable, _by_error):
            if decision := rule(failure, situation):
                break
        else:
            decision = _hold(FailureClass.UNKNOWN, f"no rule fits: {failure.explanation}")
        return _with_problem(decision, situation.target_problem)

    def _retryable(self, letter: DeadLetter, situation: Situation) -> Decision | None:
        if (category := _category(letter)) is None or not retryable(category):
            return None
        if situation.target_problem:
            return _hold(FailureClass.CONFIGURATION_ERROR, situation.target_problem)
        used = f"{situation.replays} of {self.max_replays} replays used"
        if situation.replays >= self.max_replays:
            return _hold(FailureClass.TRANSIENT_ONGOING, f"{category} error, {used}")
        return Decision(
            action=Action.REPLAY,
            failure_class=FailureClass.TRANSIENT_ONGOING,
            evidence=f"{category} error, {used}; the dependency's health is not known",
            delay=self.delay(situation.replays + 1),
        )


def _distrusted(_letter: DeadLetter, situation: Situation) -> Decision | None:
    """Hold what somebody may have forged: not even its reason is to be believed."""
    if not isinstance(situation.target_problem, Distrusted):
        return None
    return _hold(FailureClass.DATA_CORRUPTION, situation.target_problem)


def _revoked(letter: DeadLetter, _situation: Situation) -> Decision | None:
    if not was_revoked(letter):
        return None
    return Decision(
        action=Action.SKIP,
        failure_class=FailureClass.REVOKED,
        evidence="somebody revoked the task",
    )


def _undeliverable(letter: DeadLetter, situation: Situation) -> Decision | None:
    """Tell a message nobody can read from one whose handler is missing here."""
    if letter.reason is not Reason.UNDELIVERABLE:
        return None
    if letter.event is not None and situation.target_problem:
        return _hold(FailureClass.CONFIGURATION_ERROR, situation.target_problem)
    if letter.event is None:
        return _archive(f"the message could not be read: {letter.explanation}")
    return _hold(FailureClass.DATA_CORRUPTION, letter.explanation)


def _poison(letter: DeadLetter, _situation: Situation) -> Decision | None:
    if letter.reason is not Reason.POISON:
        return None
    return _hold(FailureClass.POISON, f"it kills its worker: {letter.explanation}")


def _too_old(letter: DeadLetter, _situation: Situation) -> Decision | None:
    if letter.reason is Reason.OUT_OF_TIME:  # replayed, it would run without its deadline
        return _hold(FailureClass.TOO_OLD, letter.explanation)
    if letter.reason is not Reason.TOO_OLD:
        return None
    return _hold(FailureClass.TOO_OLD, f"it waited too long: {letter.explanation}")


def _conflict(letter: DeadLetter, _situation: Situation) -> Decision | None:
    if letter.reason is not Reason.CONFLICT:
        return None
    return _hold(FailureClass.DATA_CORRUPTION, f"one key, two bodies: {letter.explanation}")


def _given_up(letter: DeadLetter, _situation: Situation) -> Decision | None:
    if _error_name(letter) not in {"GiveUp", "CommandRejectedError"}:
        return None
    return _hold(FailureClass.BUSINESS_REJECTION, f"the handler refused: {letter.error_message}")


#: Why it became a letter says more than the error's category.
_BY_REASON: Final[tuple[Rule, ...]] = (
    _revoked,
    _undeliverable,
    _poison,
    _too_old,
    _conflict,
    _given_up,
)

_CLASSES: Final = {
    Category.AUTHORIZATION: FailureClass.CONFIGURATION_ERROR,
    Category.BUDGET: FailureClass.CONFIGURATION_ERROR,
    Category.CLIENT: FailureClass.BUSINESS_REJECTION,
    Category.INTEGRITY: FailureClass.BUSINESS_REJECTION,
    Category.UNKNOWN: FailureClass.CODE_DEFECT,
}


def _by_error(letter: DeadLetter, _situation: Situation) -> Decision | None:
    category = _category(letter)
    if category is None or not letter.error_type:
        return None
    found = _CLASSES.get(category, FailureClass.UNKNOWN)
    if _error_name(letter) in {"ValidationError", "DecodeError"}:
        found = FailureClass.DATA_CORRUPTION
    said = f": {letter.error_message}" if letter.error_message else ""
    return _hold(found, f"{category} error, {letter.error_type}{said}")


def _with_problem(decision: Decision, problem: str) -> Decision:
    """Tell whoever looks at a held entry why it cannot be replayed, too."""
    if decision.action is not Action.HOLD or not problem or problem in decision.evidence:
        return decision
    evidence = f"{decision.evidence}; it cannot be replayed: {problem}"
    return replace(decision, evidence=evidence)


def _category(letter: DeadLetter) -> Category | None:
    try:
        return Category(letter.category)
    except ValueError:  # a letter of others
        return None


def _error_name(letter: DeadLetter) -> str:
    return letter.error_type.rpartition(".")[2]


def _hold(found: FailureClass, evidence: str) -> Decision:
    return Decision(action=Action.HOLD, failure_class=found, evidence=evidence)


def _archive(evidence: str) -> Decision:
    return Decision(
        action=Action.ARCHIVE, failure_class=FailureClass.DATA_CORRUPTION, evidence=evidence
    )
