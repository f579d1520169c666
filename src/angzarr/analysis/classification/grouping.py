"""Grouping: which failures are one group, where the worker's fingerprint does not suit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.classification.rule_conditions import RuleCondition, conditions_of
from angzarr.dead_letters.fingerprint import digest, fingerprint, normal_message, normal_stack
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.metadata import WORKER_FINGERPRINT
from angzarr.errors import ConfigurationError

#: Conditions that ask for the letter alone: a group must not change with the weather.
OF_THE_LETTER: Final = frozenset(
    {
        "handler", "domain", "event_type", "tenant", "reason", "category", "error_type",
        "error_code", "message", "message_matches", "explanation", "stack", "component_type",
    }
)  # fmt: skip

#: The fields by which groups may be told apart.
PARTS: Final[Mapping[str, Callable[[DeadLetter, Sequence[str]], Sequence[str]]]] = {
    "handler": lambda letter, _: (letter.handler,),
    "domain": lambda letter, _: (letter.domain,),
    "event_type": lambda letter, _: (letter.event.type if letter.event else "",),
    "tenant": lambda letter, _: ((letter.event and letter.event.tenant_id) or "",),
    "reason": lambda letter, _: (letter.reason.value,),
    "category": lambda letter, _: (letter.category,),
    "error_type": lambda letter, _: (letter.error_type,),
    "error_code": lambda letter, _: (letter.error_code,),
    "message": lambda letter, _: (normal_message(letter.error_message),),
    "stack": lambda letter, in_app: normal_stack(letter.error_stack, in_app),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingRule:
    """Letters for which all `conditions` hold are one group if they agree in all `parts`."""

    conditions: tuple[RuleCondition, ...]
    parts: tuple[str, ...]
    #: Told apart from the groups of other rules by this.
    text: str
    in_app: tuple[str, ...] = ()

    def group(self, letter: DeadLetter, in_app: Sequence[str]) -> str | None:
        """The group of *letter*, or None: the rule does not speak of it."""
        evidence = Evidence(failure=letter)
        if not all(condition.holds(evidence) for condition in self.conditions):
            return None
        values = (
            f"{part}={value}"
            for part in self.parts
            for value in PARTS[part](letter, self.in_app or in_app)
        )
        return digest(self.text, *values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The rules in order; the first that speaks decides, without one the worker's word stands."""

    rules: tuple[GroupingRule, ...] = ()
    #: The packages that are the application.
    in_app: tuple[str, ...] = ()

    def __call__(self, letter: DeadLetter) -> DeadLetter:
        """*letter* in its group; what the worker called it stays in the metadata.

        A letter that was exported from a ledger, or is to look so, begins with its worker's word.
        """
        restored = WORKER_FINGERPRINT in letter.metadata
        if not (restored or self.rules or self.in_app):
            return letter  # nearly always
        if restored:
            metadata = dict(letter.metadata)
            letter = replace(
                letter, fingerprint=metadata.pop(WORKER_FINGERPRINT), metadata=metadata
            )
        group = self._group(letter)
        if group is None or group == letter.fingerprint:
            return letter
        metadata = {**letter.metadata, WORKER_FINGERPRINT: letter.fingerprint}
        return replace(letter, fingerprint=group, metadata=metadata)

    def _group(self, letter: DeadLetter) -> str | None:
        for rule in self.rules:
            if (group := rule.group(letter, self.in_app)) is not None:
                return group
        if not self.in_app:
            return None
        return fingerprint(
            handler=letter.handler,
            error_type=letter.error_type,
            message=letter.error_message,
            stack=letter.error_stack,
            in_app=self.in_app,
        )


def grouping_rules(given: Any, source: str) -> tuple[GroupingRule, ...]:
    """The rules that a YAML list gives; raises ConfigurationError, rule and key named."""
    if not isinstance(given, list | tuple):
        msg = f"{source} must be a list of rules, each with when and by"
        raise ConfigurationError(msg)
    return tuple(_rule(one, f"{source}[{number}]") for number, one in enumerate(given))


def _rule(given: Any, source: str) -> GroupingRule:
    if not isinstance(given, Mapping) or "by" not in given:
        msg = f"{source} must say by what its letters are grouped, like by: [handler, error_type]"
        raise ConfigurationError(msg)
    if unknown := sorted(str(key) for key in given.keys() - {"when", "by", "as", "in_app"}):
        msg = f"{source} has no {unknown[0]}; there are as, by, in_app, when"
        raise ConfigurationError(msg)
    conditions = conditions_of(source, given.get("when"))
    for condition in conditions:
        if condition.name not in OF_THE_LETTER:
            known = ", ".join(sorted(OF_THE_LETTER))
            msg = f"{source}: {condition.name} may change; group by one of {known}"
            raise ConfigurationError(msg)
    parts = _texts(source, "by", given["by"], PARTS)
    text = given.get("as", "")
    if not isinstance(text, str):
        msg = f"{source}: as is a text, not {text!r}"
        raise ConfigurationError(msg)
    if not parts and not text:
        msg = f"{source}: a group without conditions needs a name, such as as: quota"
        raise ConfigurationError(msg)
    in_app = _texts(source, "in_app", given.get("in_app", []), None)
    return GroupingRule(conditions=conditions, parts=parts, text=text, in_app=in_app)


def _texts(source: str, key: str, given: Any, known: Mapping[str, Any] | None) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        msg = f"{source}: {key} is a list of texts, not {given!r}"
        raise ConfigurationError(msg)
    for one in given:
        if known is not None and one not in known:
            msg = f"{source}: {key} has no {one}; there are {', '.join(known)}"
            raise ConfigurationError(msg)
    return tuple(given)
