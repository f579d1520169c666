"""Handover: gives letters of other apps to the queues that those apps read.

A letter is filed here before it is given on, and it leaves its old queue only after the new one
confirmed it. It is given on byte by byte: another app may have signed or sealed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from angzarr.analysis.ledger.duty import report
from angzarr.analysis.ledger.entry import Entry, Failure, Hold
from angzarr.analysis.ledger.transition import is_given_on
from angzarr.analysis.worker.decisions import Deciding
from angzarr.analysis.worker.other_apps import OtherApps
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import (
    UNKNOWN_DOMAIN,
    Letterbox,
    RawLetter,
    Receipt,
    TooLarge,
    put_raw,
)
from angzarr.errors import DeadLetterQueueUnavailable, Unavailable
from angzarr.runtime.log_throttle import Seldom

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
    deciding: Deciding
    others: OtherApps
    seldom: Seldom = field(default_factory=Seldom)
    #: Apps, by domain, that took letters or were to.
    _known: set[str] = field(default_factory=set, init=False)
    #: Those of them whose queue refused letters. They are not tried again in this process.
    _refusing: set[str] = field(default_factory=set, init=False)
    _tries: int = field(default=0, init=False)

    @staticmethod
    def looks_at(receipt: Receipt) -> bool:
        """Tell whether a letter may be given on: once, out of the queue of no domain."""
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
