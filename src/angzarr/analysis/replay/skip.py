"""Skips: messages that let an ordered handler's lane go on without an event.

An entry of such a handler holds up the later events of its aggregate. Its lane must hear when it is
closed unhandled, and only a delivery moves a lane: so a skip is delivered as a replay is, with the
next replay number, the same ids and the same claim. The ledger commits it first, then it is
published, then the ledger notes that the broker has it: a crash in between leaves an entry
that falls due, and the same skip is published again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.entry import Entry, EntryDetail, HistoryLine
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import SKIP_AGAIN, Verb, asks_for_skip
from angzarr.analysis.replay.replay import Replayer, skip_message
from angzarr.dead_letters.letter import DeadLetter, Reason, Refusal
from angzarr.errors import PayloadStoreUnavailable, Unavailable
from angzarr.events.headers import from_headers

_log = logging.getLogger("angzarr.analysis")

#: Entries opened at once: all their letters are in memory.
_OPENED: Final = 20
#: What the history says when an entry was closed by a verb, or by a rule.
_CLOSED: Final = frozenset({Verb.SKIP, Verb.RESOLVE, Verb.COMPENSATE, "skipped"})
_GONE: Final = "the entry was removed meanwhile"
_STAYS: Final = "archive it, and they wait on, or move its lane by hand"

_AT_A_TERMINAL: Final = "`angzarr dlq skip` reads it all the same"


class LanePlace(NamedTuple):
    """Where in which lane an event is."""

    handler: str
    address: Address
    sequence: int


class PlannedSkip(NamedTuple):
    """An entry whose skip can be sent, and the letter that it is made of."""

    entry: Entry
    letter: DeadLetter
    place: LanePlace


def place_of(failure: Failure) -> LanePlace | None:
    """The place of an event in a lane of ours; None: it has none, nothing waits behind it.

    A second body under one event id is not the event that its lane waits for.
    """
    if not isinstance(failure, DeadLetter) or failure.reason is Reason.CONFLICT:
        return None
    message = failure.message
    if failure.envelope or not message.task:
        return None
    event = failure.event or from_headers(message.headers, data=None, event_id="", type="")
    if event.domain is None or event.root is None or event.sequence is None:
        return None
    address = Address(event.domain, event.root, event.edition or "")
    return LanePlace(failure.handler, address, event.sequence)


def told_behind(failure: Failure, count: int) -> str:
    """Say in one sentence how many events wait behind *failure*; nothing where none does."""
    place = place_of(failure)
    if place is None or count < 1:
        return ""
    said = "1 later event" if count == 1 else f"{count:,} later events"
    return f"{said} of {place.address} wait{'s' if count == 1 else ''} behind it"


def reason_of(line: HistoryLine) -> str:
    """The reason of the skip that follows *line*: what was done, by whom and why."""
    return f"{line.what} by {line.who}" + (f": {line.detail}" if line.detail else "")


def kept_reason(history: Iterable[HistoryLine]) -> str:
    """The same of an entry that was closed before."""
    closed = [line for line in history if line.what in _CLOSED]
    return reason_of(closed[-1]) if closed else "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Sends skips; raises what `Replayer` raises."""

    replayer: Replayer
    #: Says why people may have nothing sent now, or nothing: a skip then waits for the worker.
    barred: Callable[[], str] = lambda: ""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the entries."""
        return self.replayer.ledger

    def problem(self, entry: Entry, failure: Failure, verb: Verb) -> str:
        """Why *verb* cannot let the events behind *entry* go on, or an empty string."""
        if not asks_for_skip(entry, verb):
            return ""
        made = self._made(entry, failure)
        return made if isinstance(made, Refusal) else ""

    def made_for(self, entries: Sequence[Entry]) -> Mapping[str, PlannedSkip | Refusal]:
        """By id, the skip to send for each of *entries*, or why there can be none.

        One that has no place in a lane is left out: nothing is sent for it.
        """
        made: dict[str, PlannedSkip | Refusal] = {}
        for first in range(0, len(entries), _OPENED):
            some = entries[first : first + _OPENED]
            details = self.ledger.open_all([entry.id for entry in some])
            for entry in some:
                found = self._opened(entry, details.get(entry.id))
                if found is not None:
                    made[entry.id] = found
        return made

    def send_all(self, passing: Sequence[PlannedSkip], line: HistoryLine) -> set[str]:
        """Send the skips of entries that were closed just now; return those still to be sent.

        In the order of their lanes, so that none waits there for another one. What fails is left to
        the analysis worker: the entries fall due.
        """
        left = {one.entry.id for one in passing}
        if self.barred():
            return left
        for one in sorted(passing, key=lambda one: one.place):
            closed = replace(one.entry, replays=one.entry.replays + 1)
            try:
                self.send(closed, one.letter, reason_of(line))
            except Unavailable:
                break
            except Exception:  # noqa: BLE001 - the others are closed, and theirs are to be sent
                _log.exception("skip_failed: of entry %s", one.entry.id)
                continue
            left.discard(one.entry.id)
        return left

    def publish(self, detail: EntryDetail) -> str:
        """Send the skip that an entry waits for; return why it cannot be, or an empty string."""
        letter = self._letter(detail.failure)
        if isinstance(letter, Refusal):
            return letter
        self.send(detail.entry, letter, kept_reason(detail.history))
        return ""

    def send(self, entry: Entry, letter: DeadLetter, reason: str) -> None:
        """Publish the skip of *entry*, which has its number, and note that."""
        message = skip_message(letter, entry.replays, reason)
        self.replayer.publisher.publish(message)
        again_at = self.replayer.clock.now() + SKIP_AGAIN
        self.ledger.mark_published(entry.id, entry.replays, answer_by=again_at)

    def _opened(self, entry: Entry, detail: EntryDetail | None) -> PlannedSkip | Refusal | None:
        if detail is None:
            return Refusal(_GONE)
        return self._made(entry, detail.failure)

    def _made(self, entry: Entry, failure: Failure) -> PlannedSkip | Refusal | None:
        if (place := place_of(failure)) is None:
            return None
        try:
            letter = self._letter(failure)
        except PayloadStoreUnavailable as away:
            return Refusal(f"not begun, try again when its payload can be had: {away}")
        if isinstance(letter, Refusal):
            return Refusal(f"later events wait behind it and could not go on: {letter}; {_STAYS}")
        return PlannedSkip(entry, letter, place)

    def _letter(self, failure: Failure) -> DeadLetter | Refusal:
        """The letter that a skip is made of, or why there is none."""
        if problem := self.replayer.obstacle(failure):
            return Refusal(problem)
        return self.replayer.sendable(failure, too_large=_AT_A_TERMINAL)
