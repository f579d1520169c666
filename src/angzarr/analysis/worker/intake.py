"""Intake: the analysis worker's duties that take letters and answers of replays in (spec A1).

A letter is filed, an answer closes its entry. Neither is let go before the ledger
has committed it. An outcome that only a newer worker knows is let go.

Earlier releases put the letters of every app's plain tasks in the queue of no domain. `Handover`
gives those of other apps to the queues that their apps read. The writer of a letter says whose it
is, so that word runs and changes nothing. A letter is filed before it is given on, byte by byte,
and leaves its old queue only after the new one confirmed it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple

from angzarr.analysis.classification.grouping import Grouping
from angzarr.analysis.ledger.entry import BY_REPLAY, Entry, Hold, Status
from angzarr.analysis.ledger.failure import Failure, Unreadable
from angzarr.analysis.ledger.ledger import Ledger, ReplayAnswer
from angzarr.analysis.ledger.transition import is_given_on
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.worker import report
from angzarr.clock import Clock
from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.letter import UNDATED, DeadLetter
from angzarr.dead_letters.names import domain_of_app, queue_name
from angzarr.dead_letters.queue import (
    UNKNOWN_DOMAIN,
    DeadLetterQueue,
    Letterbox,
    RawLetter,
    Receipt,
    TooLarge,
    put_raw,
)
from angzarr.dead_letters.record import without_fields
from angzarr.dead_letters.replay_outcome import ReplayOutcome, ReplayOutcomes
from angzarr.errors import DeadLetterQueueUnavailable, Unavailable
from angzarr.runtime.collector import no_collections
from angzarr.runtime.failures import LogThrottle, is_machine_fault
from angzarr.runtime.json_bounds import Bounds
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.analysis")

#: Turns in which letters are tried that cannot be read for want of room, or cannot be given on,
#: before they are left queued, or held: they keep the others.
MOST_TRIES: Final = 3
#: Characters of an app's name that are shown.
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class OtherApps:
    """Tells letters of other apps by the name of this one and the domains that it reads."""

    component: str
    domains: AbstractSet[str]

    def domain_of(self, failure: Failure) -> str:
        """The domain of the app that wrote *failure*; empty if that is this app.

        It is empty, too, where it is not known: only apps of angzarr are known by their component,
        and a letter without a Celery task may be of another system.
        """
        if not isinstance(failure, DeadLetter) or failure.domain != UNKNOWN_DOMAIN:
            return ""
        if failure.component == self.component or failure.envelope or not failure.message.task:
            return ""
        domain = domain_of_app(failure.component)
        return "" if domain in self.domains else domain

    def problem(self, failure: Failure) -> str:
        """The app that wrote *failure* and what to do; empty if no other app did."""
        if not self.domain_of(failure) or not isinstance(failure, DeadLetter):
            return ""
        name = printable(failure.component[:_LONGEST])
        return (
            f"the app {name!r} wrote it: replay it there, or send it from here with --to-handler"
            " or --to-queue"
        )


#: Apps that one worker gives letters to: whoever writes a letter chooses the name of its app, and
#: each name may make a queue.
MOST_APPS: Final = 20


class _Theirs(NamedTuple):
    receipt: Receipt
    failure: Failure
    domain: str


@dataclass(slots=True, kw_only=True)
class Handover:
    """Gives on what other apps wrote; for one thread. The owner of *queue* closes it."""

    queue: Letterbox
    deciding: DecisionMaker
    others: OtherApps
    seldom: LogThrottle = field(default_factory=LogThrottle)
    #: Apps, by domain, that took letters or were to.
    _known: set[str] = field(default_factory=set, init=False)
    #: Those of them whose queue refused letters. They are not tried again in this process.
    _refusing: set[str] = field(default_factory=set, init=False)
    _tries: int = field(default=0, init=False)

    @staticmethod
    def looks_at(receipt: Receipt) -> bool:
        """True if a letter may be given on: once, out of the queue of no domain."""
        return receipt.domain == UNKNOWN_DOMAIN

    def give(self, taken: Sequence[tuple[Receipt, Failure]]) -> list[Receipt]:
        """File and give on letters of *taken*; return those done with, the rest is filed as ever.

        Raises LedgerUnavailable, and DeadLetterQueueUnavailable where a queue is tried again: give
        the same once more then.
        """
        theirs = [
            _Theirs(receipt, failure, domain)
            for receipt, failure in taken
            if self.looks_at(receipt)
            and (domain := self.others.domain_of(failure))
            and self._may_have(domain)
        ]
        filed = self._file(theirs) if theirs else []
        given = [(one, entry) for one, entry in filed if is_given_on(entry)]
        refused = self._put(given)
        for one, entry, why in refused:
            said = f"the queue {queue_name(one.domain)} did not take it ({why})"
            self.deciding.hold(entry, f"{self.others.problem(one.failure)}; {said}", Hold.RULE)
        return [one.receipt for one, _ in filed]

    def _may_have(self, domain: str) -> bool:
        if domain not in self._known and len(self._known) < MOST_APPS:
            self._known.add(domain)
        return domain in self._known and domain not in self._refusing

    def _file(self, theirs: Sequence[_Theirs]) -> list[tuple[_Theirs, Entry]]:
        told = {one.failure.id: f"given on to {queue_name(one.domain)}" for one in theirs}
        try:
            entries = self.deciding.file_given_on([one.failure for one in theirs], told)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one cannot be stored: each is filed alone then
            report("letters of other apps", error, self.seldom)
            return []
        return list(zip(theirs, entries, strict=True))

    def _put(self, given: Sequence[tuple[_Theirs, Entry]]) -> list[tuple[_Theirs, Entry, str]]:
        """Put letters where their apps read them; return those that stay here, and why."""
        letters = [
            RawLetter(domain=one.domain, raw=one.receipt.raw, content_type=one.receipt.content_type)
            for one, _ in given
        ]
        try:
            answers = put_raw(self.queue, letters) if letters else []
        except DeadLetterQueueUnavailable as error:
            answers = [str(error)] * len(letters)
        refused = [
            (one, entry, why)
            for (one, entry), why in zip(given, answers, strict=True)
            if why is not None
        ]
        again = [why for _, _, why in refused if not isinstance(why, TooLarge)]
        if again and self._tries < MOST_TRIES:
            self._tries += 1
            msg = f"{len(again)} letters of other apps cannot be given on now: {again[0]}"
            raise DeadLetterQueueUnavailable(msg)
        self._tries = 0
        self._refusing |= {one.domain for one, _, why in refused if not isinstance(why, TooLarge)}
        return refused


#: Letters taken in one turn, and answers or entries: what more would save is little.
LETTERS: Final = 500
BATCH: Final = 250
_NO_FIELDS: Final = "what carried it could not be stored either, and was not kept"


@dataclass(slots=True, kw_only=True)
class Intake:
    """Takes letters from the queues, files and decides them, lets them go."""

    queue: DeadLetterQueue
    deciding: DecisionMaker
    clock: Clock
    domains: Sequence[str]
    #: Puts a letter into its group, where rules say another than its worker.
    group: Callable[[DeadLetter], DeadLetter] = field(default_factory=Grouping)
    #: Gives other apps what they wrote; None: it is filed here and held.
    handover: Handover | None = None
    #: What a letter may hold, `dead_letters.bounds.LETTER` at least.
    bounds: Bounds = LETTER
    batch: int = LETTERS
    seldom: LogThrottle = field(default_factory=LogThrottle)
    name: str = field(default="letters", init=False)
    _receipts: list[Receipt] = field(default_factory=list, init=False)
    _tries: int = field(default=0, init=False)

    @no_collections()  # amid some ten thousand objects, none of them in a cycle
    def turn(self, wait: timedelta) -> int:
        """File a batch, waiting at most *wait* for its first letter."""
        if not self._receipts:
            self._receipts = self.queue.receive(self.domains, limit=self.batch, wait=wait)
        if not self._receipts:
            return 0
        self._read_again()
        given = self._give_on()
        if self._receipts:
            self._file()
            self.queue.done(self._receipts)
        taken, self._receipts = len(self._receipts) + given, []
        return taken

    def _give_on(self) -> int:
        """Let the letters of other apps go that those have by now, and return how many."""
        if self.handover is None:
            return 0
        told = [
            (receipt, self._failure_of(receipt))
            for receipt in self._receipts
            if self.handover.looks_at(receipt)
        ]
        if not told or not (given := self.handover.give(told)):
            return 0
        self.queue.done(given)
        gone = set(map(id, given))
        self._receipts = [receipt for receipt in self._receipts if id(receipt) not in gone]
        return len(given)

    def _file(self) -> None:
        """File the receipts in hand; one that the ledger cannot take goes back to its queue."""
        try:
            self.deciding.file([self._failure_of(receipt) for receipt in self._receipts])
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one of them cannot be stored: find it
            report(self.name, error, self.seldom)
        else:
            return
        self._receipts = [receipt for receipt in self._receipts if self._file_alone(receipt)]

    def _read_again(self) -> None:
        """Read what there was no room to read; what never fits stays queued at last.

        Raises MemoryError or OSError for want of room: they stay in hand for the next turn.
        """
        self._receipts = [_readable(receipt, self.bounds) for receipt in self._receipts]
        unread = [receipt for receipt in self._receipts if receipt.to_read_again]
        if not unread:
            self._tries = 0
            return
        self._tries += 1
        if self._tries < MOST_TRIES:
            msg = f"{len(unread)} letters cannot be read now, and wait: {unread[0].problem}"
            raise MemoryError(msg)
        said = "letters_stay_queued: %d of them cannot be read: %s"
        _log.error(said, len(unread), unread[0].problem)
        self._tries = 0
        self._receipts = [receipt for receipt in self._receipts if not receipt.to_read_again]

    def _file_alone(self, receipt: Receipt) -> bool:
        """File one letter: undecided if it is the decision that fails, else as raw bytes.

        As a last way without what carried those, which anybody may have written.

        A letter that can be read must not become one that cannot because of what is made of it.
        """
        deciding, failure = self.deciding, self._failure_of(receipt)
        problem = self._problem(lambda: deciding.file([failure]))
        problem = problem and self._problem(lambda: deciding.file_undecided([failure]))
        if problem is None:
            return True
        said = f"the ledger cannot store it ({type(problem).__name__})"
        raw = self._raw(receipt, said)
        if (problem := self._problem(lambda: deciding.file([raw]))) is None:
            return True
        if raw.record is not None:
            bare = replace(raw, record=without_fields(raw.record), problem=f"{said}; {_NO_FIELDS}")
            if (problem := self._problem(lambda: deciding.file_undecided([bare]))) is None:
                return True
        what = "letters_stay_queued: one of %s cannot be stored"
        _log.error(what, receipt.domain, exc_info=problem)
        return False

    def _problem(self, file: Callable[[], object]) -> Exception | None:
        """The error of filing, if any; raises LedgerUnavailable."""
        try:
            file()
        except Unavailable:
            raise
        except Exception as error:
            if is_machine_fault(error):
                raise  # nothing is wrong with it, and it must not become an unreadable one
            return error  # what matters is that it is kept
        return None

    def _failure_of(self, receipt: Receipt) -> Failure:
        """The failure to file; a letter of others lacks a domain or a date: its queue's, now."""
        if (letter := receipt.letter) is None:
            return self._raw(receipt, receipt.problem)
        if not letter.domain:
            letter = replace(letter, domain=receipt.domain)
        if letter.sent_to_dlq_at == UNDATED:
            letter = replace(letter, sent_to_dlq_at=self.clock.now())
        return self.group(letter)

    def _raw(self, receipt: Receipt, problem: str) -> Unreadable:
        return Unreadable(
            domain=receipt.domain,
            raw=receipt.raw,
            content_type=receipt.content_type,
            record=receipt.record,
            problem=problem,
            received_at=self.clock.now(),
        )


def _readable(receipt: Receipt, bounds: Bounds) -> Receipt:
    """*receipt*, read once more if there was no room when it came, or within wider *bounds*.

    Backends read within those that no setting lowers.
    """
    may_fit = receipt.letter is None and bounds != LETTER
    if not (receipt.to_read_again or may_fit):
        return receipt
    again = read_receipt(
        receipt.domain, receipt.raw, receipt.content_type, receipt.handle, bounds=bounds
    )
    if again.letter is not None:
        return again
    return replace(again, record=again.record or receipt.record)


#: Characters of a letter's id that a line has; ours have 64.
_LONGEST_SAID: Final = 200

#: What an outcome makes of an entry; a replay that failed again is told by its letter.
_ENDINGS: Final = {
    "handled": Status.RESOLVED,
    "duplicate": Status.RESOLVED,
    "skipped": Status.SKIPPED,
    "parked": Status.RETRYING,  # not over: its answer comes with its turn
}


@dataclass(slots=True, kw_only=True)
class ReplayResults:
    """Takes what workers say of replays and notes it, idempotently."""

    outcomes: ReplayOutcomes
    ledger: Ledger
    batch: int = BATCH
    seldom: LogThrottle = field(default_factory=LogThrottle)
    name: str = field(default="answers", init=False)
    #: Answers so far that are of no letter that is known here.
    _unknown: int = field(default=0, init=False)
    _answers: list[ReplayOutcome] = field(default_factory=list, init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Note a batch of answers."""
        if not self._answers:
            self._answers = self.outcomes.receive(limit=self.batch, wait=timedelta(0))
        self._note([one for one in self._answers if one.outcome in _ENDINGS])
        if self._answers:
            self.outcomes.done(self._answers)
        taken, self._answers = len(self._answers), []
        return taken

    def _note(self, ended: Sequence[ReplayOutcome]) -> None:
        if not ended:
            return
        entries = self.ledger.find_by_letters({one.letter_id for one in ended})
        answers = []
        for one in ended:
            if (entry := entries.get(one.letter_id)) is None:
                self._note_unknown(one)
                continue
            by = f"{BY_REPLAY}{one.replay} ({one.outcome})"
            answers.append(ReplayAnswer(entry.id, one.replay, by, _ENDINGS[one.outcome]))
        self.ledger.note_answers(answers)

    def _note_unknown(self, outcome: ReplayOutcome) -> None:
        """Say once a minute that a replay of no letter of ours was answered."""
        self._unknown += 1
        if self.seldom.now():
            said = printable(outcome.letter_id)[:_LONGEST_SAID]
            _log.warning(
                "unknown_letters_answered: replays of %d so far, the last of %s",
                self._unknown,
                said,
            )
