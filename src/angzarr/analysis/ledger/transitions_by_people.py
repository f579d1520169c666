"""Marking: the ledger's conditional changes of one entry, for every adapter that can change one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.change import Change
from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.ledger import Answer, Decided
from angzarr.analysis.ledger.operator_actions import Act, acted, compensation_sent
from angzarr.analysis.ledger.ordering_state import parked
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder

#: What becomes of an entry now; None: it may not change.
Make: TypeAlias = Callable[[Entry, datetime], Change | None]


class Marking(ABC):
    """The verbs of `Ledger` that change one entry if it is still what the caller thinks it is."""

    @abstractmethod
    def _change_all(self, changes: Sequence[tuple[str, Make]], /) -> list[Entry | None]:
        """Change entries by id, in order, in one transaction.

        None stands where there is no such entry or it may not change; the others do.
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

    def note_answers(self, answers: Sequence[Answer]) -> list[bool]:
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


def _answering(one: Answer) -> Make:
    if one.status is Status.RETRYING:
        return lambda entry, now: parked(entry, one.replay, now, one.by)
    return lambda entry, now: transition.answered(entry, one.replay, now, one.by, one.status)


def _acting(one: Act, by: str) -> Make:
    def make(entry: Entry, now: datetime) -> Change | None:
        if entry.revision != one.revision:
            return None
        return acted(entry, one.verb, now, by, one.note, skips=one.skips)

    return make
