"""Deciding: classifies entries and has the ledger carry out what that says (spec A3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from angzarr.analysis.entry import Entry, Failure, FailureClass, Hold
from angzarr.analysis.evidence import Evidence, Health
from angzarr.analysis.gathering import Gathering
from angzarr.analysis.ledger import Decided, Ledger
from angzarr.analysis.recovery import is_automatic
from angzarr.analysis.transition import Action, Decision


def _nobodys(_entries: Sequence[Entry]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Gathers what is known of entries and decides; raises LedgerUnavailable."""

    ledger: Ledger
    gathering: Gathering
    classify: Callable[[Evidence], Decision]
    #: Who stands in the history.
    name: str
    #: The replay job that has an entry, or sent its last replay, by entry id.
    owners: Callable[[Sequence[Entry]], Mapping[str, str]] = _nobodys

    def decide(self, undecided: Sequence[tuple[Entry, Failure]]) -> None:
        """Classify entries; one that changed meanwhile was decided by somebody else."""
        owners = self.owners([entry for entry, _ in undecided])
        decisions = [
            Decided(
                entry_id=entry.id,
                revision=entry.revision,
                decision=_left_to(owners.get(entry.id), self.classify(evidence)),
            )
            for (entry, _), evidence in zip(
                undecided, self.gathering.gather(undecided), strict=True
            )
        ]
        if decisions:
            self.ledger.decide(decisions, by=self.name)

    def leave_to_job(self, entry: Entry) -> bool:
        """Hold *entry*, whose replay is due, if a replay job has it; tell whether one has."""
        if not (job := self.owners([entry]).get(entry.id)):
            return False
        self.hold(entry, _said_of(job), _hold_of(job))
        return True

    def barred(self, entry: Entry) -> bool:
        """Tell whether a breaker of *entry*'s handler would let no replay through now."""
        look = self.gathering.breakers
        seen = look.of(entry.handler_name)[0] if look else None
        return any(one.health is Health.ILL for one in seen or ())

    def hold(self, entry: Entry, why: str, reason: Hold = Hold.ANSWER) -> None:
        """Hold *entry* for a person, unless it changed meanwhile."""
        decision = Decision(
            action=Action.HOLD,
            failure_class=entry.failure_class or FailureClass.UNKNOWN,
            evidence=why,
            hold=reason,
        )
        held = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
        self.ledger.decide([held], by=self.name)


def _left_to(job: str | None, decision: Decision) -> Decision:
    """Return *decision*, which replays nothing that is a job's: it would blur what the job sees."""
    if job is None or decision.action is not Action.REPLAY:
        return decision
    evidence = f"{_said_of(job)}; {decision.evidence}"
    return replace(decision, action=Action.HOLD, evidence=evidence, hold=_hold_of(job))


def _hold_of(job: str) -> Hold:
    """Return why what *job* replayed is held: what began by itself may be recovered again."""
    return Hold.RULE if is_automatic(job) else Hold.JOB


def _said_of(job: str) -> str:
    return f"left to replay job {job}"
