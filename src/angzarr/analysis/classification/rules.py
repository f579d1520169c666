"""Rules: data by which failures are classified; the first that fits decides (spec A3).

Rules of the settings come first, then those in Python, then those that ship with angzarr
(`rules.yaml`); one engine tries them all. `RuleIndex` leaves out rules that cannot fit: most ask
for one of a few things first, so a flood of alike failures tries only what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import yaml  # type: ignore[import-untyped]

from angzarr.analysis.classification.evidence import Evidence, check_saying, say
from angzarr.analysis.classification.rule_conditions import CONDITIONS, RuleCondition, conditions_of
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import ConfigurationError
from angzarr.runtime.fast_init import fast_init
from angzarr.runtime.text import printable
from angzarr.runtime.yaml import read_yaml

#: Characters of a failed rule's error that the evidence repeats.
_SHOWN: Final = 300
_NONE: Final = timedelta(0)
_LONGEST_DELAY: Final = timedelta(days=30)


class Pause(StrEnum):
    """When a replay begins, or an entry is looked at again, where a rule gives no number."""

    BACKOFF = "backoff"  # longer each time
    SOON = "soon"  # spread over a short while, so that not all come at once


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """The verdict of a rule: `delay` is the time, for a replay or a wait only."""

    failure_class: FailureClass
    action: Action
    evidence: str
    delay: timedelta | Pause = Pause.BACKOFF
    #: Name of the rule; empty: a classifier of others said it.
    rule: str = ""


class RuleTrial(NamedTuple):
    """A rule that was tried: what it says, or why it did not speak."""

    rule: ClassificationRule
    verdict: RuleVerdict | None
    #: Why it did not fit; for one that fits what made it fit.
    why: str
    #: Whether it broke: then this belongs to the evidence.
    failed: bool = False


class ClassificationRule(Protocol):
    """A rule that may decide about a failure."""

    @property
    def name(self) -> str:
        """Its name, which no other rule has."""

    @property
    def source(self) -> str:
        """Who said it, for people."""

    def verdict(self, evidence: Evidence, /) -> RuleVerdict | None:
        """The verdict of the rule, None if it does not apply; may raise."""

    def told(self, evidence: Evidence, /) -> str:
        """Why it speaks or does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRule:
    """A rule of a YAML file or of the settings."""

    name: str
    source: str
    conditions: tuple[RuleCondition, ...]
    failure_class: FailureClass
    action: Action
    saying: str
    delay: timedelta | Pause = Pause.BACKOFF

    def verdict(self, evidence: Evidence) -> RuleVerdict | None:
        """The verdict of the rule if all its conditions hold."""
        for _, _, get, fits in self.conditions:
            if not fits(get(evidence)):
                return None
        return RuleVerdict(
            failure_class=self.failure_class,
            action=self.action,
            evidence=say(self.saying, evidence),
            delay=self.delay,
            rule=self.name,
        )

    def told(self, evidence: Evidence) -> str:
        """The first condition that does not hold, or all of them."""
        for condition in self.conditions:
            if not condition.holds(evidence):
                return f"{condition.said(evidence)}, not {condition.wanted_said}"
        return ", ".join(condition.said(evidence) for condition in self.conditions) or "always"


#: A developer's rule: it may speak, or leave it to the next one.
Judge: TypeAlias = Callable[[DeadLetter, Evidence], EntryDecision | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRule:
    """A rule that a developer wrote as a function; unreadable letters it is not asked about."""

    name: str
    judge: Judge
    #: Name of the rule that it is tried before; None: before all that ship with angzarr.
    before: str | None = None
    source: str = "Python"

    def verdict(self, evidence: Evidence) -> RuleVerdict | None:
        """The verdict of the function; raises its errors, and TypeError if it is not a verdict."""
        if evidence.letter is None:
            return None
        said = self.judge(evidence.letter, evidence)
        return None if said is None else verdict_of(said, self.name)

    def told(self, evidence: Evidence) -> str:
        """The little that is known of a function."""
        return "it said so" if evidence.letter else "the letter cannot be read"


def verdict_of(said: EntryDecision, rule: str = "") -> RuleVerdict:
    """The checked decision of a user's function, as *rule* or alone; raises TypeError."""
    if not isinstance(said, EntryDecision):
        msg = f"it returned {type(said).__name__}, not an EntryDecision or None"
        raise TypeError(msg)
    if not isinstance(said.delay, timedelta) or not _NONE <= said.delay <= _LONGEST_DELAY:
        msg = (
            f"its delay must be a timedelta from 0 to {_LONGEST_DELAY.days} days, not {said.delay}"
        )
        raise TypeError(msg)
    return RuleVerdict(
        failure_class=FailureClass(said.failure_class),
        action=Action(said.action),
        evidence=str(said.evidence),
        delay=said.delay or Pause.BACKOFF,
        rule=rule,
    )


def decide(
    rules: Iterable[ClassificationRule], evidence: Evidence
) -> tuple[RuleVerdict | None, list[str]]:
    """The verdict of the first rule that fits, and the rules that broke before it."""
    broken: list[str] = []
    for rule in rules:
        try:
            found = rule.verdict(evidence)
        except Exception as error:  # noqa: BLE001 - a rule of others must not stop the worker
            broken.append(_broken(rule, error))
            continue
        if found is not None:
            return found, broken
    return None, broken


def try_all(rules: Iterable[ClassificationRule], evidence: Evidence) -> list[RuleTrial]:
    """The trial of each of *rules*; the first with a verdict decides."""
    return [_try(rule, evidence) for rule in rules]


def _try(rule: ClassificationRule, evidence: Evidence) -> RuleTrial:
    try:
        found = rule.verdict(evidence)
    except Exception as error:  # noqa: BLE001 - the same
        return RuleTrial(rule, None, _broken(rule, error), failed=True)
    why = rule.told(evidence)
    if found is None and isinstance(rule, PythonRule) and evidence.letter:
        why = "it did not speak"
    return RuleTrial(rule, found, why)


def _broken(rule: ClassificationRule, error: Exception) -> str:
    return printable(f"rule {rule.name} failed: {type(error).__name__}: {error}"[:_SHOWN])


def in_order(
    written: Sequence[ClassificationRule],
    python: Sequence[PythonRule],
    built_in: Sequence[ClassificationRule],
) -> tuple[ClassificationRule, ...]:
    """All rules in the order in which they are tried.

    Raises ConfigurationError for two of one name, and for a `before` that names no rule.
    """
    rules: list[ClassificationRule] = [
        *written,
        *(one for one in python if one.before is None),
        *built_in,
    ]
    for one in python:
        if one.before is None:
            continue
        names = [rule.name for rule in rules]
        if one.before not in names:
            msg = f"rule {one.name}: there is no rule {one.before!r} to come before"
            raise ConfigurationError(msg)
        rules.insert(names.index(one.before), one)
    _check_names(rules)
    return tuple(rules)


def _check_names(rules: Iterable[ClassificationRule]) -> None:
    seen: dict[str, ClassificationRule] = {}
    for rule in rules:
        if (other := seen.setdefault(rule.name, rule)) is not rule:
            msg = f"{other.source} and {rule.source} both call a rule {rule.name!r}: rename one"
            raise ConfigurationError(msg)


# -- reading them ----------------------------------------------------------------------------


def rules_from(given: Any, source: str) -> tuple[WrittenRule, ...]:
    """The rules that a YAML list gives; raises ConfigurationError, rule and key named."""
    if not isinstance(given, list | tuple):
        msg = f"{source} must be a list of rules, each with name, when and then"
        raise ConfigurationError(msg)
    rules = tuple(_rule(one, f"{source}[{number}]") for number, one in enumerate(given))
    _check_names(rules)
    return rules


def _rule(given: Any, source: str) -> WrittenRule:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        msg = f"{source} must have a name, like name: crm-is-moving"
        raise ConfigurationError(msg)
    name, place = given["name"], source
    source = f"rule {name} ({place})"
    _check_keys(source, given, {"name", "when", "then"})
    then = given.get("then")
    if not isinstance(then, Mapping):
        msg = f"{source}: then is missing, like then: {{class: code_defect, action: hold}}"
        raise ConfigurationError(msg)
    _check_keys(f"{source}: then", then, {"class", "action", "delay", "say"})
    action = _of(Action, source, "action", then.get("action"))
    return WrittenRule(
        name=name,
        source=place,
        conditions=()
        if given.get("when") == "always"
        else conditions_of(source, given.get("when")),
        failure_class=_of(FailureClass, source, "class", then.get("class")),
        action=action,
        delay=_delay(source, action, then),
        saying=_saying(source, then.get("say", "{error}")),
    )


def _check_keys(source: str, given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(str(key) for key in given.keys() - known):
        msg = f"{source} has no {unknown[0]}; there are {', '.join(sorted(known))}"
        raise ConfigurationError(msg)


def _of(kind: Any, source: str, key: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(one.value for one in kind)
        msg = f"{source}: {key} is one of {known}, not {value!r}"
        raise ConfigurationError(msg) from error


def _delay(source: str, action: Action, then: Mapping[str, Any]) -> timedelta | Pause:
    given = then.get("delay", Pause.BACKOFF)
    if "delay" in then and action not in {Action.REPLAY, Action.WAIT}:
        msg = f"{source}: delay is for the actions replay and wait, not for {action}"
        raise ConfigurationError(msg)
    if isinstance(given, str) and given in set(Pause):
        return Pause(given)
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if number and 0 < given <= _LONGEST_DELAY.total_seconds():  # no comparison holds for nan
        return timedelta(seconds=given)
    days = _LONGEST_DELAY.days
    msg = f"{source}: delay is soon, backoff, or seconds up to {days} days, not {given!r}"
    raise ConfigurationError(msg)


def _saying(source: str, given: Any) -> str:
    if problem := check_saying(given):
        msg = f"{source}: say: {problem}"
        raise ConfigurationError(msg)
    return str(given)


#: The conditions by which rules are left out.
_ASKED: Final = (
    "reason", "category", "error_type", "error_code", "component_type", "problem", "dependency",
    "failed_again", "payload_fits",
)  # fmt: skip
_GETS: Final = tuple(CONDITIONS[name].get for name in _ASKED)
#: Combinations that are remembered, and characters of one: letters are hostile.
_MOST: Final = 512
_LONGEST: Final = 1_000


class RuleIndex:
    """The *rules* left for each combination that came; not for more than one thread."""

    def __init__(self, rules: Sequence[ClassificationRule]) -> None:
        self._rules = tuple(rules)
        self._left: dict[tuple[object, ...], tuple[ClassificationRule, ...]] = {}

    def rules_for(self, evidence: Evidence) -> tuple[ClassificationRule, ...]:
        """The rules that may speak about *evidence*, in order."""
        asked = tuple(get(evidence) for get in _GETS)
        if (left := self._left.get(asked)) is not None:
            return left
        left = tuple(rule for rule in self._rules if _may_speak(rule, evidence))
        if sum(len(str(value)) for value in asked) <= _LONGEST:
            if len(self._left) >= _MOST:
                self._left.clear()
            self._left[asked] = left
        return left


def _may_speak(rule: ClassificationRule, evidence: Evidence) -> bool:
    if not isinstance(rule, WrittenRule):
        return True
    return all(one.holds(evidence) for one in rule.conditions if one.name in _ASKED)


#: Where settings name rules: those that classify, those that group.
RULES: Final = "analysis.rules"
GROUPING: Final = "analysis.grouping"


@cache
def built_in_rules() -> tuple[WrittenRule, ...]:
    """The rules that ship with angzarr, in order."""
    text = resources.files("angzarr.analysis").joinpath("rules.yaml").read_text("utf-8")
    return rules_from(yaml.safe_load(text), "angzarr's rules")


def read(given: str | Sequence[Any], setting: str) -> tuple[Any, str]:
    """The list of a setting, given or in a YAML file, and where it stands.

    Raises ConfigurationError naming file and line.
    """
    if not isinstance(given, str):
        return given, setting
    found = read_yaml(Path(given), f"{setting}: {given}")
    if found is not None and not isinstance(found, list):
        msg = f"{setting}: {given} must hold a list of rules, each beginning with '- '"
        raise ConfigurationError(msg)
    return found or [], given
