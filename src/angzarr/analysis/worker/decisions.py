"""DecisionMaker: classifies entries and has the ledger carry the decisions out (spec A3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from angzarr.analysis.classification.evidence import DependencyHealth, Evidence
from angzarr.analysis.classification.evidence_collector import EvidenceCollector, Outlook
from angzarr.analysis.ledger.entry import BY_HANDOVER, Entry, FailureClass, Hold
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.filing_plan import Undecided
from angzarr.analysis.ledger.ledger import Decided, Ledger
from angzarr.analysis.ledger.transition import Action, EntryDecision, awaits_look
from angzarr.analysis.replay.job import is_automatic
from angzarr.analysis.replay.skip import place_of
from angzarr.analysis.worker.worker import report
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import Unavailable
from angzarr.runtime.failures import LogThrottle

#: Within this a job that goes on has noted that a replay of its own failed.
_SEEN_BY_JOB: Final = timedelta(seconds=30)


#: Why an entry of an ordered handler is held that would be archived else.
_HOLDS_UP: Final = "later events of its aggregate wait behind it"


def _nobodys(_entries: Sequence[Entry]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMaker:
    """Gathers what is known of entries and decides; raises LedgerUnavailable."""

    ledger: Ledger
    gathering: EvidenceCollector
    classify: Callable[[Evidence], EntryDecision]
    #: Who stands in the history.
    name: str
    #: The replay job that has an entry, or sent its last replay, by entry id.
    owners: Callable[[Sequence[Entry]], Mapping[str, str]] = _nobodys
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def file(self, failures: Sequence[Failure]) -> list[Entry]:
        """File *failures* and decide about those that are new, in one transaction of the ledger.

        If classification fails, entries are stored and retried after one minute.
        """
        try:
            outlook = self.gathering.look()
        except Exception as error:  # noqa: BLE001 - what matters is that they are kept
            report("decisions", error, self.seldom)
            return self.file_undecided(failures)

        def decide(undecided: Sequence[Undecided]) -> list[EntryDecision]:
            try:
                return self._decisions(undecided, outlook)
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - the same
                report("decisions", error, self.seldom)
                return []

        return self.ledger.add_failed_events(failures, decide=decide, by=self.name)

    def file_undecided(self, failures: Sequence[Failure]) -> list[Entry]:
        """File *failures*, which wake a minute later to be decided."""
        return self.ledger.add_failed_events(failures)

    def file_given_on(self, failures: Sequence[Failure], told: Mapping[str, str]) -> list[Entry]:
        """File *failures* of other apps, archived with what *told* says of each by letter id."""

        def decide(undecided: Sequence[Undecided]) -> list[EntryDecision]:
            return [
                EntryDecision(
                    action=Action.ARCHIVE,
                    failure_class=FailureClass.UNKNOWN,
                    evidence=told[one.failure.id],
                )
                for one in undecided
            ]

        by = f"{BY_HANDOVER}{self.name}"
        return self.ledger.add_failed_events(failures, decide=decide, by=by)

    def decide(self, undecided: Sequence[Undecided]) -> list[tuple[Undecided, EntryDecision]]:
        """Classify entries; another worker has decided those that changed meanwhile.

        Returns those that are to be compensated now: they waited for it, so nothing holds them.
        """
        found = list(zip(undecided, self._decisions(undecided), strict=True))
        now = [(one, decision) for one, decision in found if _compensates(one.entry, decision)]
        decided = [
            Decided(entry_id=one.entry.id, revision=one.entry.revision, decision=decision)
            for one, decision in found
            if not _compensates(one.entry, decision)
        ]
        if decided:
            self.ledger.decide(decided, by=self.name)
        return now

    def _decisions(
        self, undecided: Sequence[Undecided], outlook: Outlook | None = None
    ) -> list[EntryDecision]:
        known = [one.stored for one in undecided if one.stored is not None]
        owners = self.owners(known) if known else {}
        return [
            _letting_go(one, _left_to(owners.get(one.entry.id), self.classify(evidence)), evidence)
            for one, evidence in zip(
                undecided, self.gathering.gather(undecided, outlook), strict=True
            )
        ]

    def leave_to_job(self, entry: Entry) -> bool:
        """Hold *entry*, whose replay is due, if a replay job has it; tell whether one has."""
        if not (job := self.owners([entry]).get(entry.id)):
            return False
        self.hold(entry, _left_with(job, entry.evidence), _hold_of(job))
        return True

    def barred(self, entry: Entry) -> bool:
        """True if a breaker of *entry*'s handler would let no replay through now."""
        look = self.gathering.breakers
        seen = look.of(entry.handler_name)[0] if look else None
        return any(one.health is DependencyHealth.ILL for one in seen or ())

    def hold(self, entry: Entry, why: str, reason: Hold = Hold.ANSWER) -> None:
        """Hold *entry* for a person, unless it changed meanwhile."""
        decision = EntryDecision(
            action=Action.HOLD,
            failure_class=entry.failure_class or FailureClass.UNKNOWN,
            evidence=why,
            hold=reason,
        )
        held = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
        self.ledger.decide([held], by=self.name)


def _compensates(entry: Entry, decision: EntryDecision) -> bool:
    """True if *entry*, which woke, is to be compensated; any other waits for that first."""
    return decision.action is Action.COMPENSATE and awaits_look(entry)


def _left_to(job: str | None, decision: EntryDecision) -> EntryDecision:
    """*decision*, which replays nothing that is a job's: it would blur what the job sees.

    What is to be compensated waits until the job has seen that its replay failed.
    """
    if job is None:
        return decision
    if decision.action is Action.COMPENSATE:
        return replace(decision, delay=max(decision.delay, _SEEN_BY_JOB))
    if decision.action is not Action.REPLAY:
        return decision
    evidence = _left_with(job, decision.evidence)
    return replace(decision, action=Action.HOLD, evidence=evidence, hold=_hold_of(job))


def _letting_go(one: Undecided, decision: EntryDecision, evidence: Evidence) -> EntryDecision:
    """*decision*; a skip lets the later events go on that wait behind the entry.

    An entry that was archived would go on holding them up, unseen. What
    others wrote holds nothing up here, whatever they call the component that failed.
    """
    if not one.entry.is_ordered or _is_of_others(one.failure):
        return decision
    if decision.action is Action.ARCHIVE:
        helps = "skip it" if evidence.target_problem else "replay it, or skip it"
        said = "; ".join(filter(None, (decision.evidence, f"{_HOLDS_UP}: {helps}")))
        return replace(decision, action=Action.HOLD, evidence=said)
    if decision.action is Action.SKIP:
        return replace(decision, lets_go=place_of(one.failure) is not None)
    return decision


def _is_of_others(failure: Failure) -> bool:
    return isinstance(failure, DeadLetter) and bool(failure.envelope) and not failure.message.task


def _hold_of(job: str) -> Hold:
    """Why what *job* replayed is held: what began by itself may be recovered again."""
    return Hold.RULE if is_automatic(job) else Hold.JOB


def _left_with(job: str, evidence: str) -> str:
    return "; ".join(filter(None, (f"left to replay job {job}", evidence)))
