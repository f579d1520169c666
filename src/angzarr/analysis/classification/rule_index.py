"""Sieve: the rules that are worth trying for a failure. Pure.

Most rules ask first for one of a few things of which failures have few different values. For each
such combination it is found out once which rules are left; a flood of alike failures tries only
those. The order of rules is kept, and what remains is tried as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.classification.rule_conditions import CONDITIONS
from angzarr.analysis.classification.rules import Rule, WrittenRule

#: The conditions by which rules are left out.
_ASKED: Final = ("reason", "category", "error_type", "error_code", "component_type")
_GETS: Final = tuple(CONDITIONS[name].get for name in _ASKED)
#: Combinations that are remembered, and characters of one: letters are hostile.
_MOST: Final = 512
_LONGEST: Final = 1_000


class Sieve:
    """What is left of *rules* for each combination that came; not for more than one thread."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._left: dict[tuple[object, ...], tuple[Rule, ...]] = {}

    def rules_for(self, evidence: Evidence) -> tuple[Rule, ...]:
        """Return the rules that may speak about *evidence*, in order."""
        asked = tuple(get(evidence) for get in _GETS)
        if (left := self._left.get(asked)) is not None:
            return left
        left = tuple(rule for rule in self._rules if _may_speak(rule, evidence))
        if sum(len(str(value)) for value in asked) <= _LONGEST:
            if len(self._left) >= _MOST:
                self._left.clear()
            self._left[asked] = left
        return left


def _may_speak(rule: Rule, evidence: Evidence) -> bool:
    if not isinstance(rule, WrittenRule):
        return True
    return all(one.holds(evidence) for one in rule.conditions if one.name in _ASKED)
