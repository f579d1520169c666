"""DueEntries: the duty that does what an entry waited for, once its time has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from angzarr.analysis.ledger.entry import Entry, EntryDetail, Status
from angzarr.analysis.ledger.failure import Failure, payload_of
from angzarr.analysis.ledger.filing_plan import Undecided, as_stored
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.ledger.transition import EntryDecision, awaits_look, is_judged_here
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.replay import Replayer, asked_by
from angzarr.analysis.replay.skip import Skips
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.worker import may_pass, report
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable, Unavailable
from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.runtime.failures import LogThrottle, is_machine_fault

#: Replays that the broker may refuse in one turn before it counts as away.
MOST_REFUSED: Final = 3


#: Entries woken in one turn: their letters are kept until those that wait for it are decided.
DUE: Final = 100
#: Entries opened at once: all their letters are in memory.
OPENED: Final = 20
#: Returns an entry with its letter.
Opened: TypeAlias = Callable[[str], EntryDetail | None]

_MAY_HAVE_RUN: Final = (
    "its compensation was begun more than a day ago and may have been sent, which no claim would"
    " tell any more: look whether it ran, and send it with angzarr dlq compensate if it did not"
)

#: How often the broker may refuse one message, while it is there, before a person is asked.
MOST_TRIES: Final = 5


@dataclass(slots=True, kw_only=True)
class DueEntries:
    """Wakes entries that are due: they are decided, replayed, or held for a person."""

    ledger: Ledger
    deciding: DecisionMaker
    replayer: Replayer
    #: What sends compensations that were decided and not sent.
    compensator: Compensator
    #: What sends skips that were decided and not sent, or not answered.
    skips: Skips
    #: Tells entries of which statuses sleep on, as nothing may be sent for them now.
    asleep: Callable[[], Collection[Status]] = frozenset
    #: Tells whether an error of a publish concerns that message alone.
    refuses: Callable[[Exception], bool] = lambda _error: False
    batch: int = DUE
    seldom: LogThrottle = field(default_factory=LogThrottle)
    name: str = field(default="due entries", init=False)
    _refused: set[str] = field(default_factory=set, init=False)
    #: By entry: how often the broker refused its message alone.
    _tries: Counter[str] = field(default_factory=Counter, init=False)
    _store_away: PayloadStoreUnavailable | None = field(default=None, init=False)
    #: Found in this turn, to be decided together at its end.
    _undecided: list[Undecided] = field(default_factory=list, init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Wake what is due; what was refused comes last, so that it holds up no other.

        What nothing may be sent for now sleeps on.

        A payload store that is away is asked once a turn: most entries do not need it.
        """
        due = self.ledger.due(limit=self.batch, lease=self.replayer.lease, besides=self.asleep())
        refusals: list[Exception] = []
        self._store_away = None
        self._undecided = []
        woken = 0
        for entry, opened in self._opened(due):
            try:
                self._wake(entry, partial(self._act_on, entry, opened))
                woken += 1
            except PayloadStoreUnavailable as error:
                self._refused.add(entry.id)
                self._store_away = error
            except Exception as error:
                if not may_pass(error):
                    raise
                self._refused.add(entry.id)
                refusals.append(error)
                if len(refusals) == MOST_REFUSED:
                    break
        refusals += self._compensate_all(self.deciding.decide(self._undecided))
        if self._store_away:
            refusals.append(self._store_away)
        if refusals:
            raise refusals[-1]
        if due:
            self._refused.clear()
        return woken

    def _opened(self, due: Sequence[Entry]) -> Iterator[tuple[Entry, Opened]]:
        """Entries, those refused last at the end, each with what opens it: few at a time."""
        in_order = sorted(due, key=lambda one: one.id in self._refused)
        for first in range(0, len(in_order), OPENED):
            some = in_order[first : first + OPENED]
            details: Mapping[str, EntryDetail] | None = None
            try:
                details = self.ledger.open_all([one.id for one in some if _needs_letter(one)])
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one cannot be read: the others can
                report(self.name, error, self.seldom)
            for entry in some:
                yield entry, self.ledger.open if details is None else details.get

    def _wake(self, entry: Entry, act: Callable[[], str]) -> None:
        """Do what *entry* waited for; one that cannot be published is held with the cause.

        Raises what is away, and what this machine lacks: the entry is due again then.
        """
        try:
            problem = act()
        except BrokerUnavailable as error:
            if not (problem := self._given_up(entry, error)):
                raise
        except Unavailable:
            raise
        except Exception as error:  # one broken message must not stop the others
            if is_machine_fault(error):
                raise
            problem = f"the message could not be published: {type(error).__name__}: {error}"
        self._tries.pop(entry.id, None)
        if problem:
            self.deciding.hold(entry, problem)

    def _given_up(self, entry: Entry, error: BrokerUnavailable) -> str:
        """Why *entry* is not sent any more, or nothing: it is tried again."""
        if not self.refuses(error):
            return ""
        self._tries[entry.id] += 1
        if self._tries[entry.id] < MOST_TRIES:
            return ""
        return f"the broker refused its message {MOST_TRIES} times: {error}"

    def _act_on(self, entry: Entry, opened: Opened) -> str:
        """Act on *entry*; return why a person must look at it, or an empty string."""
        if not _needs_letter(entry):
            return f"no answer to replay {entry.replays} came in time"
        found = opened(entry.id)
        if found is None or found.entry.revision != entry.revision:
            return ""
        if self._store_away and payload_of(found.failure):
            raise self._store_away
        match entry.status:
            case Status.FAILED:
                self._undecided.append(as_stored(entry, found.failure))
            case Status.WAITING if is_judged_here(entry):  # else its lease brings it to newer ones
                return self._replay(entry, found.failure)
            case Status.COMPENSATED | Status.SKIPPED | Status.RESOLVED:
                return self._send_behind(found)
            case Status.RETRYING if not self.deciding.barred(entry):  # its lease brings it back
                by = asked_by(found.history)
                return self.replayer.publish(entry, found.failure, found.order, by=by)
        return ""

    def _replay(self, entry: Entry, failure: Failure) -> str:
        """Replay *entry*, unless a job has it, or it waits to be looked at again."""
        if self.deciding.leave_to_job(entry):
            return ""
        if awaits_look(entry) or self.deciding.barred(entry):
            self._undecided.append(as_stored(entry, failure))
            return ""
        return self.replayer.replay(entry, failure, by=self.deciding.name)

    def _send_behind(self, found: EntryDetail) -> str:
        """Send what an entry that is closed waits for: its skip, and before it its compensation."""
        entry = found.entry
        if entry.status is Status.COMPENSATED and entry.published_at is None:
            return self._publish_compensation(found)
        return self.skips.publish(found)

    def _publish_compensation(self, found: EntryDetail) -> str:
        """Send what may have been sent before, while the claim of the first would still know."""
        since = found.entry.resolved_at
        if since is not None and self.replayer.clock.now() - since >= RECORD_LIFE:
            return _MAY_HAVE_RUN
        return self.compensator.publish(found)

    def _compensate_all(self, found: Iterable[tuple[Undecided, EntryDecision]]) -> list[Exception]:
        """Compensate all that may be; return the refusals, after which an entry is due again."""
        refusals: list[Exception] = []
        for one, decision in found:
            try:
                self._wake(one.entry, partial(self._compensate, one, decision))
            except Exception as error:
                if not may_pass(error):
                    raise
                refusals.append(error)
                if len(refusals) == MOST_REFUSED:
                    break
        return refusals

    def _compensate(self, one: Undecided, decision: EntryDecision) -> str:
        """Compensate what waits for it, on the road of people, unless it ever was compensated.

        Then a letter of a later replay brought it back, and only a person can tell what is left.
        """
        detail = self.ledger.open(one.entry.id)
        if detail is None:
            return ""
        if any(line.what == Verb.COMPENSATE for line in detail.history):
            return f"it was compensated before, which is not repeated: {decision.evidence}"
        by, note = self.deciding.name, decision.evidence
        return self.compensator.compensate(one.entry, one.failure, by=by, note=note)


def _needs_letter(entry: Entry) -> bool:
    """True if something can be done for *entry*; the answer to a replay can only be missed."""
    return entry.status is not Status.RETRYING or entry.published_at is None
