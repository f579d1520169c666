"""VerdictMemo: failures that are alike get the verdict of the first of them. Pure.

Most dead letters come in floods. What written rules can ask of one is a fixed list: letters that
are equal in all of it have one verdict. A rule in Python may ask for anything, so that nothing is
kept then.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.classification.rules import (
    ClassificationRule,
    RuleIndex,
    RuleVerdict,
    WrittenRule,
    decide,
)
from angzarr.events.headers import EVENT_ID

#: What conditions and sentences can see of a letter, of its event and of the evidence, but for the
#: age: that differs from letter to letter, and few rules ask for it.
_texts_of: Final = operator.attrgetter(
    "domain", "handler", "category", "error_type", "error_code", "error_message", "explanation",
    "error_stack", "version", "component_type",
)  # fmt: skip
_more_of: Final = operator.attrgetter("reason", "replay", "mismatch")
_of_event: Final = operator.attrgetter("type", "tenant_id")
_of_evidence: Final = operator.attrgetter(
    "replays", "target_problem", "breakers", "newer_release", "fit.fits", "fit.why"
)
_of_fares: Final = operator.attrgetter("events", "failed", "handled")
_AGE: Final = "age_at_least"
#: Verdicts that are kept, and characters of the texts that lead to one: letters are hostile.
_MOST: Final = 128
_LONGEST: Final = 12_000


class FoundVerdict(NamedTuple):
    """The verdict of the first rule that fits, and the rules that broke before it."""

    verdict: RuleVerdict | None
    broken: Sequence[str]


class VerdictMemo:
    """Asks *rules*, once for all that is alike; not for more than one thread."""

    def __init__(self, rules: Sequence[ClassificationRule]) -> None:
        self._index = RuleIndex(rules)
        written = [rule for rule in rules if isinstance(rule, WrittenRule)]
        self._remembers = len(written) == len(rules)
        self._ask_age = any(one.name == _AGE for rule in written for one in rule.conditions)
        self._known: dict[Hashable, FoundVerdict] = {}

    def find(self, evidence: Evidence) -> FoundVerdict:
        """The verdict on *evidence*."""
        key = self._key(evidence) if self._remembers else None
        if key is None:
            return self._ask(evidence)
        if (found := self._known.get(key)) is None:
            found = self._ask(evidence)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found

    def _ask(self, evidence: Evidence) -> FoundVerdict:
        return FoundVerdict(*decide(self._index.rules_for(evidence), evidence))

    def _key(self, evidence: Evidence) -> Hashable | None:
        """All that the verdict goes by; None: it is too much, or the bytes are no letter."""
        letter = evidence.letter
        if letter is None:
            return None
        texts, event = _texts_of(letter), letter.event
        of_event = _of_event(event) if event else (None, None)
        said = (evidence.target_problem, evidence.fit.why, *filter(None, of_event))
        if sum(map(len, texts)) + sum(map(len, said)) > _LONGEST:
            return None
        handler, group = evidence.handler_fares, evidence.group_fares
        return (
            texts,
            _more_of(letter),
            event and of_event,
            EVENT_ID in letter.message.headers,
            _of_evidence(evidence),
            handler and _of_fares(handler),
            group and _of_fares(group),
            type(evidence.target_problem),  # equal texts may be problems of two kinds
            evidence.age if self._ask_age else None,
        )
