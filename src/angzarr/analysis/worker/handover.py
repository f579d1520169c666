"""Handover: gives letters of other apps to the queues that those apps read.

Earlier releases put the letters of every app's plain tasks in the queue of no domain. A letter's
writer says whose it is, so that word runs and changes nothing. A letter is filed here before it is
given on, byte by byte, and leaves its old queue only after the new one confirmed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry, Hold
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.transition import is_given_on
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.worker import report
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import domain_of_app, queue_name
from angzarr.dead_letters.queue import (
    UNKNOWN_DOMAIN,
    Letterbox,
    RawLetter,
    Receipt,
    TooLarge,
    put_raw,
)
from angzarr.errors import DeadLetterQueueUnavailable, Unavailable
from angzarr.runtime.log_throttle import LogThrottle
from angzarr.runtime.text import printable

#: Characters of an app's name that are shown.
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class OtherApps:
    """Tells letters of other apps by the name of this one and the domains that it reads."""

    component: str
    domains: AbstractSet[str]

    def domain_of(self, failure: Failure) -> str:
        """The domain of the app that wrote *failure*; empty if that is this app.

        It is empty, too, where nobody knows: only apps of angzarr are known by their component,
        and a letter without a Celery task may be of another system.
        """
        if not isinstance(failure, DeadLetter) or failure.domain != UNKNOWN_DOMAIN:
            return ""
        if failure.component == self.component or failure.envelope or not failure.message.task:
            return ""
        domain = domain_of_app(failure.component)
        return "" if domain in self.domains else domain

    def problem(self, failure: Failure) -> str:
        """Return which app wrote *failure* and what to do; empty if no other app did."""
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
#: Turns in which a queue that does not take letters is tried, before people are asked.
MOST_TRIES: Final = 3


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
        """Return what is filed and done with, of *taken*; the rest is to be filed as ever.

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
