"""LedgerInTest: the analysis worker in this process, and what it makes of this test's letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final, overload

from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.worker.worker import AnalysisWorker
from angzarr.app.angzarr import Angzarr
from angzarr.testing.letters import DeadLetters, only, where
from angzarr.testing.worker import WITHIN, InProcessWorker, NotSettled
from angzarr.wiring.analysis_worker import open_replayer, open_worker

#: Entries that are looked at; a test has few.
_MOST: Final = 1_000
#: Rounds of one run; more is a circle.
_ROUNDS: Final = 1_000
#: In whose name a test acts.
_BY: Final = "test"


class LedgerInTest(Sequence[Entry]):
    """The entries of this test, the one that failed last first.

    Letters are filed and decided by `analyse`, `replay` and `run_until_settled`, never by
    themselves: until then `dead_letters` has them and this is empty.
    """

    def __init__(
        self,
        ledger: Ledger,
        analysis: AnalysisWorker,
        replayer: Replayer,
        worker: InProcessWorker,
        letters: DeadLetters,
    ) -> None:
        self._ledger = ledger
        self._analysis = analysis
        self._replayer = replayer
        self._worker = worker
        self._letters = letters

    def analyse(self, *, wait: timedelta = timedelta(0)) -> list[Entry]:
        """File the letters that wait, decide on each, begin what is due; return all entries.

        *wait* for the first, on a real queue.
        """
        self._step(wait)
        return self._entries()

    def run_until_settled(self, *, within: timedelta = WITHIN) -> list[Entry]:
        """Let analysis and worker work until neither has anything to do; moves the clock.

        Replays that the analysis worker begins by itself are made, each at its time. Raises
        NotSettled where that takes longer than *within* by the clock.
        """
        until = self._worker.clock.now() + within
        for _ in range(_ROUNDS):
            if self._step() or self._worker.run_until_settled(within=within):
                continue
            if (wakes := self._next_wake()) is None:
                return self._entries()
            if wakes.wake_at is None or wakes.wake_at > until:
                msg = f"not settled within {within}: {shown(wakes)} is due at {wakes.wake_at}"
                raise NotSettled(msg)
            self._worker.clock.move_to(wakes.wake_at)
        msg = f"{_ROUNDS} rounds and no end: {[shown(one) for one in self._entries()]}"
        raise NotSettled(msg)

    def replay(self, entry: Entry) -> Entry:
        """Replay *entry* as a person would, wait until that has ended, return it as it is then.

        Raises AssertionError with the reason where it cannot be replayed.
        """
        detail = self.open(entry)
        if why := self._replayer.replay(detail.entry, detail.failure, by=_BY):
            msg = f"{shown(entry)} is not replayed: {why}"
            raise AssertionError(msg)
        self._worker.run_until_settled()
        self._step()
        return self.open(entry).entry

    def open(self, entry: Entry) -> EntryDetail:
        """Return *entry* as it is now with its letter and its history."""
        detail = self._ledger.open(entry.id)
        if detail is None:
            msg = f"{shown(entry)} is not in the ledger any more"
            raise AssertionError(msg)
        return detail

    def where(self, **wanted: Any) -> list[Entry]:
        """Return the entries whose fields are as *wanted*; TypeError for a field they lack."""
        return where(Entry, self._entries(), wanted)

    def only(self, **wanted: Any) -> Entry:
        """Return the one entry whose fields are as *wanted*; AssertionError if it is not one."""
        found: Entry = only(Entry, self._entries(), ("entry", "entries"), wanted, shown)
        return found

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries())

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        """Return one entry, or some."""
        return self._entries()[index]

    def __repr__(self) -> str:
        return "[" + ", ".join(map(shown, self._entries())) + "]"

    def _entries(self) -> list[Entry]:
        return list(self._ledger.get_failed_events(status=None, limit=_MOST).entries)

    def _step(self, wait: timedelta = timedelta(0)) -> bool:
        """Do rounds until one has nothing to do; tell whether any had."""
        worked = False
        for _ in range(_ROUNDS):
            self._letters.note()
            done = self._analysis.step(wait=wait)
            if done.away:
                msg = f"the analysis worker could not do its work: {', '.join(done.away)}"
                raise NotSettled(msg)
            if done.idle:
                break
            worked, wait = True, timedelta(0)
        return worked

    def _next_wake(self) -> Entry | None:
        sleeping = [one for one in self._entries() if one.wake_at is not None]
        return min(sleeping, key=lambda one: str(one.wake_at), default=None)


def shown(entry: Entry) -> str:
    """Return *entry* in a few words."""
    found = f", {entry.failure_class}" if entry.failure_class else ""
    return (
        f"<{entry.handler_name} of {entry.event_id!r}: {entry.status}{found},"
        f" {entry.replays} replays: {entry.evidence or entry.error_message}>"
    )


@contextmanager
def open_ledger(
    app: Angzarr, worker: InProcessWorker, letters: DeadLetters
) -> Iterator[LedgerInTest]:
    """Give the ledger of *app*, which is staged."""
    with ExitStack() as doors:
        analysis = doors.enter_context(open_worker(app, app.dead_letter_domains()))
        replayer = open_replayer(app, doors)
        yield LedgerInTest(replayer.ledger, analysis, replayer, worker, letters)
