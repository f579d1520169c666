"""The real ledger in a database, as the model asks for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.released_payloads import SqlReleasedPayloads
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.ledger.entry import EntryDetail, FailureClass, Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from payload_model.parts import Entry

_LEASE = timedelta(seconds=30)
_OVERDUE = EntryDecision(
    action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="no answer came"
)


class EntriesInSql:
    """What `parts.Ledger` is, in `ledger_entries` and its companions."""

    def __init__(self, database: LedgerDatabase, clock: Clock) -> None:
        self.released = SqlReleasedPayloads(database)
        self._ledger = SqlLedger(database, clock)
        self._clock = clock

    @property
    def entries(self) -> dict[str, Entry]:
        """All entries, by the event of each."""
        return {event: _seen(detail) for event, detail in self._details().items()}

    def file(self, letter: DeadLetter) -> None:
        """File *letter*."""
        self._ledger.add_failed_event(letter)

    def begin(self, event: str, *, edited: bool) -> int | None:
        """Begin the next replay of an entry, perhaps with other data; None: it may not be."""
        detail = self._details()[event]
        entry, letter = detail.entry, detail.failure
        if entry.status is Status.RETRYING:
            asked = Decided(entry_id=entry.id, revision=entry.revision, decision=_OVERDUE)
            self._ledger.decide([asked], by="model")
            entry = self._details()[event].entry
        order = AS_IT_IS
        if edited and isinstance(letter, DeadLetter):
            order = ReplayOrder(letter=replace(letter, payload=None), before=letter, said="all")
        begun = self._ledger.mark_retrying(
            entry.id, entry.replays + 1, revision=entry.revision, by="model",
            lease=_LEASE, order=order,
        )  # fmt: skip
        return None if begun is None else begun.replays

    def end(self, event: str) -> None:
        """Note that *event* was handled; it may have no entry."""
        detail = self._details().get(event)
        if detail is None:
            return
        entry = detail.entry
        if entry.status is Status.RETRYING:
            self._ledger.mark_answered(entry.id, entry.replays, by="model")
        else:
            done = Act(entry_id=entry.id, revision=entry.revision, verb=Verb.RESOLVE)
            self._ledger.act([done], by="model")

    def remove(self, events: Sequence[str], _chance: random.Random) -> None:
        """Remove the entries of *events*, if no other is closed."""
        closed = {event for event, entry in self.entries.items() if entry.closed}
        if closed <= set(events):
            self._prune()

    def clear(self) -> None:
        """Remove all entries."""
        for event in self.entries:
            self.end(event)
        self._prune()

    def _prune(self) -> None:
        self._ledger.prune({Status.RESOLVED: self._clock.now() + _LEASE}, limit=100)

    def _details(self) -> dict[str, EntryDetail]:
        page = self._ledger.get_failed_events(status=None, limit=100)
        found = self._ledger.open_all([entry.id for entry in page.entries])
        return {detail.entry.event_id: detail for detail in found.values()}


def _seen(detail: EntryDetail) -> Entry:
    assert isinstance(detail.failure, DeadLetter)
    return Entry(detail.failure, detail.entry.status is Status.RESOLVED, detail.before)
