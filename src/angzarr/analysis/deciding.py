"""Deciding: classifies entries and has the ledger carry out what that says (spec A3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from angzarr.analysis.classify import Situation
from angzarr.analysis.entry import Entry, Failure, FailureClass
from angzarr.analysis.ledger import Decided, Ledger
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import Action, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Gathers what is known of entries and decides; raises LedgerUnavailable."""

    ledger: Ledger
    replayer: Replayer
    classify: Callable[[Situation], Decision]
    #: Who stands in the history.
    name: str

    def decide(self, undecided: Sequence[tuple[Entry, Failure]]) -> None:
        """Classify entries; one that changed meanwhile was decided by somebody else."""
        decisions = [
            Decided(
                entry_id=entry.id,
                revision=entry.revision,
                decision=self.classify(self._situation(entry, failure)),
            )
            for entry, failure in undecided
        ]
        if decisions:
            self.ledger.decide(decisions, by=self.name)

    def hold(self, entry: Entry, why: str) -> None:
        """Hold *entry* for a person, unless it changed meanwhile."""
        decision = Decision(
            action=Action.HOLD,
            failure_class=entry.failure_class or FailureClass.UNKNOWN,
            evidence=why,
        )
        held = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
        self.ledger.decide([held], by=self.name)

    def _situation(self, entry: Entry, failure: Failure) -> Situation:
        return Situation(
            failure=failure,
            replays=entry.replays,
            target_problem=self.replayer.obstacle(failure),
        )
