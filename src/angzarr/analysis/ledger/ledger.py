"""Ledger: the port of the store that keeps every failure until people are done with it (A2).

`EntryTransitions` holds its conditional changes of one entry, for every adapter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.entry import Change, Entry, EntryDetail, FailureClass, Hold, Status
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.filing_plan import Decider
from angzarr.analysis.ledger.group import fingerprint_at, group_address
from angzarr.analysis.ledger.operator_actions import Act, acted, compensation_sent, parked
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder
from angzarr.analysis.ledger.transition import EntryDecision
from angzarr.events.headers import time_of

#: The most entries on one page.
LONGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision about an entry as it was seen at `revision`."""

    entry_id: str
    revision: int
    decision: EntryDecision


class ReplayAnswer(NamedTuple):
    """How a replay ended well; with RETRYING it did not: it is parked in its lane."""

    entry_id: str
    replay: int
    #: Who stands in the history.
    by: str
    status: Status = Status.RESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries; None: any. Times bound `last_failed_at`: `since` ≤ it < `until`."""

    handler_name: str | None = None
    domain: str | None = None
    event_type: str | None = None
    event_id: str | None = None
    fingerprint: str | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    root: str | None = None
    failure_class: FailureClass | None = None
    reason: str | None = None
    category: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    hold: Hold | None = None
    #: The release of the worker that failed last.
    version: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: What the entry's id begins with.
    id_prefix: str = ""


ANY: Final = EntryFilter()
#: Fields of a filter that an entry's field of the same name must equal.
EXACT: Final = (
    "handler_name", "domain", "event_type", "event_id", "fingerprint", "tenant_id",
    "correlation_id", "root", "failure_class", "reason", "category", "error_type", "error_code",
    "version", "hold",
)  # fmt: skip


class Cursor(NamedTuple):
    """The last entry of a page, or the last group; the next one begins behind it."""

    last_failed_at: datetime
    entry_id: str

    def __str__(self) -> str:
        return f"{self.last_failed_at.isoformat()}~{group_address(self.entry_id)}"


def read_cursor(text: str) -> Cursor:
    """The cursor that *text* was made from; raises ValueError if it is none."""
    at, tilde, entry_id = text.partition("~")
    moment = time_of(at)
    if not tilde or moment is None:
        msg = f"{text!r} is not a cursor of a page"
        raise ValueError(msg)
    return Cursor(moment, fingerprint_at(entry_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """Entries, the one that failed last first; `next` is the cursor of the next page, or empty."""

    entries: tuple[Entry, ...]
    next: str = ""


def entry_page_of(entries: Sequence[Entry], limit: int) -> EntryPage:
    """The page of *entries*, which hold one more than *limit* if there is another page."""
    shown = tuple(entries[:limit])
    if len(entries) <= limit or not shown:
        return EntryPage(entries=shown)
    return EntryPage(entries=shown, next=str(Cursor(shown[-1].last_failed_at, shown[-1].id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStats:
    """How many entries there are, of which kind."""

    total: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_domain: Mapping[str, int] = field(default_factory=dict)
    by_handler: Mapping[str, int] = field(default_factory=dict)
    #: Letters filed, replays begun.
    occurrences: int = 0
    replays: int = 0
    #: First failure of the oldest open entry.
    oldest_open_at: datetime | None = None


class Ledger(Protocol):
    """Where entries live. Every verb raises LedgerUnavailable when the database is away.

    Each verb is one transaction. A change is made only if the entry is still in the state that
    the verb or its arguments name; `transition` says which that is.
    """

    def add_failed_event(self, failure: Failure, /) -> Entry:
        """File one failure; see `add_failed_events`."""
        return self.add_failed_events([failure])[0]

    @abstractmethod
    def add_failed_events(
        self, failures: Sequence[Failure], /, *, decide: Decider | None = None, by: str = ""
    ) -> list[Entry]:
        """The entry of each failure, in order, once all of them are stored.

        *decide* is asked about those that fail, in the same transaction and perhaps twice; what
        it raises is raised, and nothing is stored. What it says is carried out in the name *by*.

        A failure of an event whose entry exists updates that one. The same letter twice changes
        nothing. A letter that names the letter whose replay failed finds that letter's entry,
        also where only the replay could read the event.
        """

    @abstractmethod
    def decide(self, decisions: Sequence[Decided], /, *, by: str) -> list[bool]:
        """Carry each decision out if its entry is still at the revision that it names."""

    @abstractmethod
    def act(self, acts: Sequence[Act], /, *, by: str) -> list[bool]:
        """Do what a person says to each entry at the revision named, if its verb applies there.

        With `Verb.RESOLVE` this is the `mark_resolved` of spec A2; of a replay that was handled it
        is `mark_answered`.
        """

    @abstractmethod
    def due(self, *, limit: int, lease: timedelta, besides: Collection[Status] = ()) -> list[Entry]:
        """Take up to *limit* entries whose `wake_at` passed, the longest overdue first.

        Each is this caller's for *lease*; then it is due again. Those in a status of *besides*
        sleep on.
        """

    @abstractmethod
    def mark_retrying(
        self,
        entry_id: str,
        replay: int,
        /,
        *,
        revision: int,
        by: str,
        lease: timedelta,
        order: ReplayOrder = AS_IT_IS,
    ) -> Entry | None:
        """Begin replay number *replay* if the entry is at *revision* and this is its next one.

        *order* is kept with the number: `open` returns it for as long as it is the last one.

        Returns None otherwise. If `mark_published` does not follow within *lease* the entry is
        due again, to be published under the same number.
        """

    @abstractmethod
    def mark_published(self, entry_id: str, replay: int, /, *, answer_by: datetime) -> bool:
        """Note that the broker confirmed *replay*, if that is the replay or skip under way."""

    def mark_answered(
        self, entry_id: str, replay: int, /, *, by: str, status: Status = Status.RESOLVED
    ) -> bool:
        """Note one answer; see `note_answers`."""
        return self.note_answers([ReplayAnswer(entry_id, replay, by, status)])[0]

    @abstractmethod
    def note_answers(self, answers: Sequence[ReplayAnswer], /) -> list[bool]:
        """Close each entry if the replay is its last one and no letter answered that.

        One that is closed already, and waits for what became of its skip, stays what it is.
        """

    @abstractmethod
    def mark_compensated(self, entry_id: str, /) -> bool:
        """Note that the broker confirmed the compensation of an entry that waits for that."""

    @abstractmethod
    def find_by_letters(self, letter_ids: Collection[str], /) -> Mapping[str, Entry]:
        """The entry, by letter, in which it was filed, as far as there is one."""

    def open(self, entry_id: str, /) -> EntryDetail | None:
        """One entry; see `open_all`."""
        return self.open_all([entry_id]).get(entry_id)

    @abstractmethod
    def open_all(self, entry_ids: Collection[str], /) -> Mapping[str, EntryDetail]:
        """The entries, by id, with letter and history, oldest line first, where they are.

        The letters of all of them are in memory at once: ask for few, see `letter_sizes`.
        """

    @abstractmethod
    def letter_sizes(self, entry_ids: Collection[str], /) -> Mapping[str, int]:
        """The size of the letters in bytes, by entry id, edits included; reads none."""

    @abstractmethod
    def get_failed_events(
        self,
        wanted: EntryFilter = ANY,
        /,
        *,
        status: Status | None = Status.FAILED,
        limit: int = 100,
        after: str = "",
    ) -> EntryPage:
        """A page of entries in *status* (None: any), following the cursor *after*.

        At most `LONGEST_PAGE`; raises ValueError on a cursor that is none.
        """

    @abstractmethod
    def oldest_open(self, *, limit: int = 1, unmuted: bool = False) -> list[Entry]:
        """Up to *limit* open entries, the one that failed first longest ago first.

        With *unmuted* those of groups that are muted now are passed over; a store may look through
        the 100,000 oldest and no further.
        """

    @abstractmethod
    def get_failure_stats(self) -> FailureStats:
        """Count all entries."""

    @abstractmethod
    def prune(self, before: Mapping[Status, datetime], /, *, limit: int) -> int:
        """Remove up to *limit* entries and return how many.

        They are in one of the statuses, nothing happened to them since the time named beside it,
        and nothing is still to be done. Letter and history go with them. Those that another
        caller is removing are passed over.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


#: What becomes of an entry now; None: it may not change.
Make: TypeAlias = Callable[[Entry, datetime], Change | None]


class EntryTransitions(ABC):
    """The verbs of `Ledger` that change one entry if it is still what the caller thinks it is."""

    @abstractmethod
    def _change_all(self, changes: Sequence[tuple[str, Make]], /) -> list[Entry | None]:
        """Change entries by id, in order, in one transaction.

        None stands for an entry that does not exist or may not change; the others do.
        """

    def decide(self, decisions: Sequence[Decided], *, by: str) -> list[bool]:
        """Carry out the decisions about entries that did not change since."""
        made = self._change_all([(one.entry_id, _deciding(one, by)) for one in decisions])
        return [entry is not None for entry in made]

    def act(self, acts: Sequence[Act], *, by: str) -> list[bool]:
        """Do to entries that did not change since what a person says."""
        made = self._change_all([(one.entry_id, _acting(one, by)) for one in acts])
        return [entry is not None for entry in made]

    def mark_retrying(
        self,
        entry_id: str,
        replay: int,
        *,
        revision: int,
        by: str,
        lease: timedelta,
        order: ReplayOrder = AS_IT_IS,
    ) -> Entry | None:
        """Begin a replay of an entry that did not change since."""

        def change(entry: Entry, now: datetime) -> Change | None:
            if entry.revision != revision:
                return None
            begun = transition.retrying(entry, replay, now, by, lease)
            return transition.ordered(begun, order)

        return self._change_one(entry_id, change)

    def mark_published(self, entry_id: str, replay: int, *, answer_by: datetime) -> bool:
        """Note that the replay under way is with the broker."""
        changed = self._change_one(
            entry_id, lambda entry, now: transition.published(entry, replay, now, answer_by)
        )
        return changed is not None

    def note_answers(self, answers: Sequence[ReplayAnswer]) -> list[bool]:
        """Close entries whose last replay ended well."""
        made = self._change_all([(one.entry_id, _answering(one)) for one in answers])
        return [entry is not None for entry in made]

    def mark_compensated(self, entry_id: str) -> bool:
        """Note that the compensation is with the broker."""
        return self._change_one(entry_id, compensation_sent) is not None

    def _change_one(self, entry_id: str, make: Make) -> Entry | None:
        return self._change_all([(entry_id, make)])[0]


def _deciding(one: Decided, by: str) -> Make:
    def make(entry: Entry, now: datetime) -> Change | None:
        if entry.revision != one.revision:
            return None
        return transition.decided(entry, one.decision, now, by)

    return make


def _answering(one: ReplayAnswer) -> Make:
    if one.status is Status.RETRYING:
        return lambda entry, now: parked(entry, one.replay, now, one.by)
    return lambda entry, now: transition.answered(entry, one.replay, now, one.by, one.status)


def _acting(one: Act, by: str) -> Make:
    def make(entry: Entry, now: datetime) -> Change | None:
        if entry.revision != one.revision:
            return None
        return acted(entry, one.verb, now, by, one.note, skips=one.skips)

    return make
