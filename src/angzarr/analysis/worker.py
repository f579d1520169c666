"""AnalysisWorker: reads the dead-letter queues into the ledger, decides, replays (spec A1).

It must never let a letter or an answer go before the ledger has committed what it says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol

from angzarr.analysis.classify import Situation
from angzarr.analysis.entry import Entry, Failure, FailureClass, Status, Unreadable, payload_of
from angzarr.analysis.ledger import Decided, Ledger
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.transition import Action, Decision
from angzarr.clock import Clock
from angzarr.dead_letters.letter import UNDATED
from angzarr.dead_letters.queue import DeadLetterQueue, Receipt
from angzarr.dead_letters.replay_outcome import ReplayOutcome, ReplayOutcomes
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable, Unavailable
from angzarr.seldom import Seldom

_log = logging.getLogger("angzarr.analysis")

#: Letters, answers and entries taken in one round.
BATCH: Final = 100
#: How long a round waits for the first letter.
POLL: Final = timedelta(seconds=1)
#: Pause after a round that met a dependency away: doubled up to the longest, with jitter.
FIRST_WAIT: Final = timedelta(milliseconds=200)
LONGEST_WAIT: Final = timedelta(seconds=10)
#: Pause after a round without work: a queue may answer at once that it is empty.
IDLE_WAIT: Final = timedelta(milliseconds=50)
#: Replays that the broker may refuse in one round before it counts as away.
MOST_REFUSED: Final = 3

#: What an outcome makes of an entry; a replay that failed again is told by its letter.
_ENDINGS: Final = {
    "handled": Status.RESOLVED,
    "duplicate": Status.RESOLVED,
    "skipped": Status.SKIPPED,
}


class Stop(Protocol):
    """A threading.Event, or what a test makes of it."""

    def is_set(self) -> bool:
        """Tell whether to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds for it; return whether to stop."""


@dataclass(slots=True, kw_only=True)
class Round:
    """What one round did. `away` names what failed; what it was about is kept and tried again."""

    letters: int = 0
    answers: int = 0
    due: int = 0
    away: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.letters or self.answers or self.due)


@dataclass(slots=True, kw_only=True)
class AnalysisWorker:
    """One worker; several share the work. Not for more than one thread."""

    queue: DeadLetterQueue
    ledger: Ledger
    outcomes: ReplayOutcomes
    replayer: Replayer
    classify: Callable[[Situation], Decision]
    clock: Clock
    domains: Sequence[str]
    #: Who stands in the history, e.g. ``analysis@host:pid``.
    name: str
    chance: Callable[[], float]
    batch: int = BATCH
    seldom: Seldom = field(default_factory=Seldom)
    _receipts: list[Receipt] = field(default_factory=list, init=False)
    _answers: list[ReplayOutcome] = field(default_factory=list, init=False)
    _refused: set[str] = field(default_factory=set, init=False)
    _store_away: PayloadStoreUnavailable | None = field(default=None, init=False)

    def run(self, stop: Stop) -> None:
        """Work until *stop* is set; what is in hand then goes back when the queues are closed."""
        wait = FIRST_WAIT
        while not stop.is_set():
            done = self.step(wait=POLL)
            if done.away:
                stop.wait(wait.total_seconds() * (0.5 + self.chance()))
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            wait = FIRST_WAIT
            if done.idle:
                stop.wait(IDLE_WAIT.total_seconds())

    def step(self, *, wait: timedelta = timedelta(0)) -> Round:
        """Do one round: letters (waiting at most *wait* for the first), answers, what is due."""
        done = Round()
        self._guarded(done, "letters", lambda: self._take_letters(done, wait))
        self._guarded(done, "answers", lambda: self._take_answers(done))
        self._guarded(done, "due entries", lambda: self._take_due(done))
        return done

    def _guarded(self, done: Round, what: str, part: Callable[[], None]) -> None:
        """Run *part*; whatever fails in it must not stop the others, nor lose what it holds."""
        try:
            part()
        except Exception as error:  # noqa: BLE001 - the worker must outlive every error
            done.away.append(what)
            self._report(what, error)

    def _take_letters(self, done: Round, wait: timedelta) -> None:
        if not self._receipts:
            self._receipts = self.queue.receive(self.domains, limit=self.batch, wait=wait)
        if not self._receipts:
            return
        filed = self._file()
        self._decide({e.id: (e, f) for e, f in filed if e.status is Status.FAILED})
        self.queue.done(self._receipts)
        done.letters = len(self._receipts)
        self._receipts = []

    def _file(self) -> list[tuple[Entry, Failure]]:
        """File the receipts in hand; one that the ledger cannot take goes back to its queue."""
        failures = [self._failure_of(receipt) for receipt in self._receipts]
        try:
            return list(zip(self.ledger.add_failed_events(failures), failures, strict=True))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one of them cannot be stored: find it
            self._report("letters", error)
        filed = [(receipt, self._file_alone(receipt)) for receipt in self._receipts]
        self._receipts = [receipt for receipt, pair in filed if pair]
        return [pair for _, pair in filed if pair]

    def _file_alone(self, receipt: Receipt) -> tuple[Entry, Failure] | None:
        """File one letter, as raw bytes if the ledger cannot take it as it was read."""
        failure = self._failure_of(receipt)
        try:
            return self.ledger.add_failed_event(failure), failure
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - what matters is that it is kept
            raw = self._raw(receipt, f"the ledger cannot store it ({type(error).__name__})")
        try:
            return self.ledger.add_failed_event(raw), raw
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - it stays in its queue
            _log.exception("a letter of %s cannot be stored and stays queued", receipt.domain)
            return None

    def _failure_of(self, receipt: Receipt) -> Failure:
        """Return what is filed; a letter of others lacks a domain or a date: its queue's, now."""
        if (letter := receipt.letter) is None:
            return self._raw(receipt, receipt.problem)
        if not letter.domain:
            letter = replace(letter, domain=receipt.domain)
        if letter.sent_to_dlq_at == UNDATED:
            letter = replace(letter, sent_to_dlq_at=self.clock.now())
        return letter

    def _raw(self, receipt: Receipt, problem: str) -> Unreadable:
        return Unreadable(
            domain=receipt.domain,
            raw=receipt.raw,
            content_type=receipt.content_type,
            problem=problem,
            received_at=self.clock.now(),
        )

    def _decide(self, undecided: dict[str, tuple[Entry, Failure]]) -> None:
        """Classify entries; one that changed meanwhile was decided by somebody else."""
        decisions = [
            Decided(
                entry_id=entry.id,
                revision=entry.revision,
                decision=self.classify(
                    Situation(
                        failure=failure,
                        replays=entry.replays,
                        target_problem=self.replayer.obstacle(failure),
                    )
                ),
            )
            for entry, failure in undecided.values()
        ]
        if decisions:
            self.ledger.decide(decisions, by=self.name)

    def _take_answers(self, done: Round) -> None:
        if not self._answers:
            self._answers = self.outcomes.receive(limit=self.batch, wait=timedelta(0))
        for outcome in self._answers:
            self._note(outcome)
        if self._answers:
            self.outcomes.done(self._answers)
        done.answers = len(self._answers)
        self._answers = []

    def _note(self, outcome: ReplayOutcome) -> None:
        status = _ENDINGS.get(outcome.outcome)
        if status is None:
            return
        entry = self.ledger.find_by_letter(outcome.letter_id)
        if entry is None:
            _log.warning("a replay of the unknown letter %s was answered", outcome.letter_id)
            return
        by = f"replay {outcome.replay} ({outcome.outcome})"
        self.ledger.mark_answered(entry.id, outcome.replay, by=by, status=status)

    def _take_due(self, done: Round) -> None:
        """Wake what is due; what was refused comes last, so that it holds up no other.

        A payload store that is away is asked once a round: most entries do not need it.
        """
        due = self.ledger.due(limit=self.batch, lease=self.replayer.lease)
        refusals: list[Unavailable] = []
        self._store_away = None
        for entry in sorted(due, key=lambda one: one.id in self._refused):
            try:
                self._wake(entry)
                done.due += 1
            except PayloadStoreUnavailable as error:
                self._refused.add(entry.id)
                self._store_away = error
            except BrokerUnavailable as error:
                self._refused.add(entry.id)
                refusals.append(error)
                if len(refusals) == MOST_REFUSED:
                    break
        if self._store_away:
            refusals.append(self._store_away)
        if refusals:
            raise refusals[-1]
        if due:
            self._refused.clear()

    def _wake(self, entry: Entry) -> None:
        """Do what *entry* waited for; one that cannot be published is held with the cause."""
        try:
            problem = self._act_on(entry)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one broken message must not stop the others
            problem = f"the message could not be published: {type(error).__name__}: {error}"
        if problem:
            self._hold(entry, problem)

    def _act_on(self, entry: Entry) -> str:
        """Act on *entry*; return why a person must look at it, or an empty string."""
        if entry.status is Status.RETRYING and entry.published_at is not None:
            return f"no answer to replay {entry.replays} came in time"
        found = self.ledger.open(entry.id)
        if found is None or found.entry.revision != entry.revision:
            return ""
        if self._store_away and payload_of(found.failure):
            raise self._store_away
        match entry.status:
            case Status.FAILED:
                self._decide({entry.id: (entry, found.failure)})
            case Status.WAITING:
                return self.replayer.replay(entry, found.failure, by=self.name)
            case Status.RETRYING:
                return self.replayer.publish(entry, found.failure)
        return ""

    def _hold(self, entry: Entry, why: str) -> None:
        decision = Decision(
            action=Action.HOLD,
            failure_class=entry.failure_class or FailureClass.UNKNOWN,
            evidence=why,
        )
        held = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
        self.ledger.decide([held], by=self.name)

    def _report(self, what: str, error: Exception) -> None:
        if not self.seldom.now(what):
            return
        known = isinstance(error, Unavailable)
        _log.error(
            "%s wait, nothing is lost, trying again: %s", what, error,
            exc_info=None if known else error,
        )  # fmt: skip
