"""The rules of an app for its dead letters. What they are asked with is `wiring.evidence`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from angzarr.errors import ConfigurationError
from angzarr.wiring.process import ProcessParts

if TYPE_CHECKING:  # the analysis is imported only where it is used
    from angzarr.analysis.classification.classify import Classifier, Replacement
    from angzarr.analysis.classification.evidence_collector import EvidenceCollector
    from angzarr.analysis.classification.rules import Judge, PythonRule
    from angzarr.analysis.replay.replay import Replayer

F = TypeVar("F", bound="Judge")


class DeadLetterRules:
    """The rules of an app, and what can be asked about its failures."""

    def __init__(self, parts: ProcessParts) -> None:
        self._parts = parts
        self._rules: list[PythonRule] = []
        self._replacement: Replacement | None = None

    def dlq_rule(self, *, name: str = "", before: str | None = None) -> Callable[[F], F]:
        """Let the decorated function classify dead letters; see `add_dlq_rule`."""

        def add(judge: F) -> F:
            self.add_dlq_rule(judge, name=name, before=before)
            return judge

        return add

    def add_dlq_rule(self, judge: Judge, *, name: str = "", before: str | None = None) -> None:
        """Let ``judge(letter, evidence)`` classify dead letters: a Decision, or None to pass.

        It is asked after the rules of the settings and before those that ship with angzarr, or
        just before the rule called *before*. What it raises stands in the evidence, and the next
        rule is asked. *name* is its function's by default. It must not do I/O.
        """
        from angzarr.analysis.classification.rules import PythonRule

        called = name or getattr(judge, "__name__", "")
        if not called or any(rule.name == called for rule in self._rules):
            msg = f"a rule in Python needs a name that no other has, not {called!r}: pass name=…"
            raise ConfigurationError(msg)
        self._rules.append(PythonRule(name=called, judge=judge, before=before))

    def replace_dlq_classifier(self, classify: Replacement) -> None:
        """Let ``classify(evidence)`` decide in place of all rules.

        Where it raises, the rules decide. What no rule can do, it cannot do either.
        """
        self._replacement = classify

    def classifier(self, chance: Callable[[], float]) -> Classifier:
        """The classifier of this app's dead letters; raises ConfigurationError."""
        from angzarr.wiring.evidence import open_classifier

        return open_classifier(self._parts, self._rules, self._replacement, chance)

    def open_gathering(self, replayer: Replayer) -> EvidenceCollector:
        """The collector of all evidence about failures; its `peers` must be closed."""
        from angzarr.wiring.evidence import EvidenceSources

        return EvidenceSources(self._parts).open_gathering(replayer)
