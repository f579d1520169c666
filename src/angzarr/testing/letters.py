"""Dead letters and ledger entries of a test, as values that read well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, overload

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.worker.worker import AnalysisWorker
from angzarr.app.angzarr import Angzarr
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Receipt
from angzarr.dead_letters.record import record_id
from angzarr.testing.worker import WITHIN, InProcessWorker, NotSettled
from angzarr.wiring.analysis_worker import open_replayer, open_worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter; absent texts are empty. `full` is all of it, None where it is unreadable."""

    handler: str
    event_id: str
    event_type: str
    domain: str
    #: ``refused``, ``exhausted``, …: docs/reference/dead-letters.md.
    reason: str
    #: One sentence for people.
    explanation: str
    attempts: int = 0
    error_type: str = ""
    error_message: str = ""
    error_code: str = ""
    category: str = ""
    replay: int = 0
    data: Any = None
    id: str = field(default="", repr=False)
    full: DeadLetter | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        runs = "" if self.attempts == 1 else f" after {self.attempts} runs"
        return (
            f"<{self.reason} letter of {self.handler or 'no handler'} for {self.event_type}"
            f" {self.event_id!r}{runs}: {self.explanation}>"
        )


def letter_of(receipt: Receipt) -> Letter:
    """The letter in *receipt*, readable or not."""
    found = receipt.letter
    if found is None:
        return Letter(
            handler="", event_id="", event_type="", domain=receipt.domain, reason="unreadable",
            explanation=receipt.problem, id=record_id(receipt.domain, receipt.raw, receipt.record),
        )  # fmt: skip
    event = found.event
    return Letter(
        handler=found.handler,
        event_id=event.id if event else "",
        event_type=(event.type if event else "") or found.message.task,
        domain=found.domain,
        reason=found.reason.value,
        explanation=found.explanation,
        attempts=found.attempts,
        error_type=found.error_type,
        error_message=found.error_message,
        error_code=found.error_code,
        category=found.category,
        replay=found.replay,
        data=event.data if event else None,
        id=found.id,
        full=found,
    )


class DeadLetters(Sequence[Letter]):
    """All letters of this test, the first first; those that the analysis has taken stay in it."""

    def __init__(self, queue: MemoryDeadLetterQueue) -> None:
        self._queue = queue
        self._seen: dict[tuple[str, int], Letter] = {}

    def note(self) -> list[Letter]:
        """Look for new letters, and return all that there ever were."""
        for receipt in self._queue.look():
            letter = letter_of(receipt)
            self._seen.setdefault((letter.id, letter.replay), letter)
        return list(self._seen.values())

    def where(self, **wanted: Any) -> list[Letter]:
        """The letters whose fields are as *wanted*, or for which a function says so.

        Raises TypeError for a field that letters do not have.
        """
        return where(Letter, self.note(), wanted)

    def only(self, **wanted: Any) -> Letter:
        """The one letter whose fields are as *wanted*; AssertionError if it is not one."""
        found: Letter = only(Letter, self.note(), ("dead letter", "dead letters"), wanted)
        return found

    def __len__(self) -> int:
        return len(self.note())

    def __iter__(self) -> Iterator[Letter]:
        return iter(self.note())

    @overload
    def __getitem__(self, index: int) -> Letter: ...
    @overload
    def __getitem__(self, index: slice) -> list[Letter]: ...
    def __getitem__(self, index: int | slice) -> Letter | list[Letter]:
        """One letter, or some."""
        return self.note()[index]

    def __eq__(self, other: object) -> bool:
        return self.note() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.note())


def only(
    kind: type[Any],
    found: Sequence[Any],
    what: tuple[str, str],
    wanted: dict[str, Any],
    show: Callable[[Any], str] = repr,
) -> Any:
    """The one of *found* that is as *wanted*; else AssertionError lists what there is."""
    fitting = where(kind, found, wanted)
    if len(fitting) == 1:
        return fitting[0]
    asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
    said = f" with {asked}" if asked else ""
    shown = fitting or found
    listed = "".join(f"\n  {show(one)}" for one in shown) or " none at all"
    head = f"{len(fitting)} {what[1]}{said}, not one {what[0]}; " + (
        "they are:" if fitting else "there are:"
    )
    raise AssertionError(head + listed)


def where(kind: type[Any], found: Sequence[Any], wanted: dict[str, Any]) -> list[Any]:
    """Those of *found*, each a *kind*, that are as *wanted*; TypeError for a field it lacks.

    Also where nothing was found: ``where(reson="refused") == []`` would hold for ever.
    """
    known = {one.name for one in fields(kind)} | set(vars(kind))
    for name in wanted:
        if name not in known:
            msg = f"{kind.__name__} has no field {name!r}"
            raise TypeError(msg)
    return [one for one in found if all(_fits(one, *field) for field in wanted.items())]


def _fits(one: Any, name: str, wanted: Any) -> bool:
    value = getattr(one, name)
    if callable(wanted):
        return bool(wanted(value))
    return bool(value == wanted)


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
        """File the letters that wait, decide on each, begin the replays due; return all entries.

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
        """The detail of *entry* as it is now, with its letter and its history."""
        detail = self._ledger.open(entry.id)
        if detail is None:
            msg = f"{shown(entry)} is not in the ledger any more"
            raise AssertionError(msg)
        return detail

    def where(self, **wanted: Any) -> list[Entry]:
        """The entries whose fields are as *wanted*; TypeError for a field they lack."""
        return where(Entry, self._entries(), wanted)

    def only(self, **wanted: Any) -> Entry:
        """The one entry whose fields are as *wanted*; AssertionError if it is not one."""
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
        """One entry, or some."""
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
    """The *entry* in a few words."""
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
        analysis = doors.enter_context(open_worker(app.ops, app.ops.dead_letter_domains()))
        replayer = open_replayer(app.ops, doors)
        yield LedgerInTest(replayer.ledger, analysis, replayer, worker, letters)
