"""The script of an example: it accounts for its aggregates and for each rejected command."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import UUID

from celery import Celery

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import task_of
from angzarr.analysis.ledger.entry import Entry as Filed
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.demo.journal import PUBLISHED, UNDER_WAY, Pair
from angzarr.demo.run import script_of
from angzarr.demo.script import DemoScript, PublisherThread, again_if_incomplete
from angzarr.events.event import Event, event_type_of
from angzarr.sagas.log import Case, CaseFilter, RejectionStatus
from angzarr.sagas.saga import ProcessManager
from angzarr.wiring.event_store import EventDatabase, open_event_stores

#: The most problems that are printed.
_MOST: Final = 50
#: Characters of an id.
_ID: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How a run ended, in the example's own words and in the framework's."""

    commands: int
    ends: Counter[str]
    cases: Counter[RejectionStatus]
    #: Dead letters by what became one, and why.
    letters: Counter[str]
    story: Sequence[str]
    problems: Sequence[str]

    @property
    def adds_up(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def lines(self) -> list[str]:
        """The lines that are printed at the end."""
        return summary(self)


def summary(said: Balance) -> list[str]:
    """The lines that tell how everything ended."""
    lines = [f"{said.commands} commands led to:", *_counted(said.ends)]
    lines += ["Commands of sagas that were rejected:", *_counted(said.cases)]
    lines += ["Dead letters, all of them meant:" if said.adds_up else "Dead letters:"]
    lines += [*_counted(said.letters), *said.story]
    if said.adds_up:
        return [*lines, "Everything adds up."]
    more = len(said.problems) - _MOST
    rest = [f"  … and {more} more"] if more > 0 else []
    shown = [f"  {problem}" for problem in said.problems[:_MOST]]
    return [*lines, f"DOES NOT ADD UP ({len(said.problems)}):", *shown, *rest]


def _counted(counts: Mapping[Any, int]) -> list[str]:
    """A line for each word, with its count."""
    if not counts:
        return ["       0"]
    return [f"  {counts[word]:6}  {word}" for word in sorted(counts)]


def story(app: Celery, cases: Sequence[Case], command: str) -> list[str]:
    """One chain line by line: the first whose *command* was rejected and compensated."""
    told = [
        case
        for case in reversed(cases)
        if case.status is RejectionStatus.COMPENSATED and case.command_type == command
    ]
    return ["One of the chains:", *_chain(app, told[0])] if told else []


def _chain(app: Celery, case: Case) -> Iterator[str]:
    events = app.book(*case.source).events
    first = case.first_event or 0
    is_process = issubclass(app.ops.context.aggregates[case.source.domain], ProcessManager)
    cause = events[0 if is_process else case.source_sequence]
    name = app.run.id
    yield _line(name, "event", str(case.source), cause.type, _data(cause))
    said = f"{_short(case.command_id)}, sent by {case.saga}"
    yield _line(name, "command", str(case.target), case.command_type, said)
    yield _line(name, "rejection", str(case.target), _short(case.id), case.reason)
    for event in events[first : first + case.event_count]:
        yield _line(name, "compensation", str(case.source), event.type, _data(event))


def _line(run_id: str, step: str, where: str, what: str, said: str) -> str:
    return f"  {step:12} {where:24} {what:18} {said}".replace(f"{run_id}-", "")


def _data(event: Event) -> str:
    return ", ".join(f"{name} {value}" for name, value in event.data.items())


def _short(id: str) -> str:
    try:
        return UUID(id).hex[:_ID]
    except ValueError:
        return id


#: Nothing is on its way once all adds up and nothing was settled for so many seconds.
_STILL: Final = 1.0
_PAGE: Final = 500
#: How much the clocks of servers may differ.
_SKEW: Final = timedelta(minutes=5)
#: Seconds between two looks whether the doors are open.
_POLL: Final = 0.1


class Errand(NamedTuple):
    """A command of the example's traffic."""

    id: str
    ask: Any

    @property
    def address(self) -> Address:
        """The aggregate that is asked."""
        return Address(self.ask.domain, self.ask.root)


class ChainScript(DemoScript):
    """Sends an example's commands, and asks its aggregates, the rejection log and the ledger."""

    def __init__(self, app: Celery, count: int) -> None:
        run = app.run
        self._example = script_of(run)
        self._opening = self._errands("o", self._example.opening(run.id), run.id)
        self._wishes = self._errands("", self._example.wishes(run.id, count, run.seed), run.id)
        publisher = PublisherThread(self._wishes, self._publish, run.seed, before=self._open_doors)
        super().__init__(app, publisher, f"{count} commands")
        self._event_stores: EventDatabase = open_event_stores(app.settings, app.ops.broker_url)
        self._began = datetime.now(UTC) - _SKEW
        self._decided: set[str] = set()
        self._seen, self._seen_at = 0, 0.0
        self._left = 1

    @staticmethod
    def _errands(mark: str, asks: Iterable[Any], run_id: str) -> list[Errand]:
        return [Errand(f"{run_id}:{mark}{number:05}", ask) for number, ask in enumerate(asks)]

    def _publish(self, errand: Errand) -> None:
        ask = errand.ask
        self.app.send_command(
            ask.command, domain=ask.domain, root=ask.root, expected=ask.expected, id=errand.id
        )
        task = task_of(ask.domain, event_type_of(ask.command))
        self.app.journal.write(PUBLISHED, Pair(task, errand.id))

    def _open_doors(self, stopped: threading.Event) -> None:
        """Do what all else needs, and wait until it is done."""
        for errand in self._opening:
            again_if_incomplete(self._publish, errand)
        while not all(map(self._is_decided, self._opening)) and not stopped.wait(_POLL):
            pass

    def is_ours(self, entry: Filed) -> bool:
        """True if the flow of *entry* begins with a command of this run's."""
        return entry.correlation_id.startswith(f"{self.app.run.id}:")

    def look(self, ledger: Ledger) -> None:
        """See how far the run is; raises Unavailable."""
        super().look(ledger)
        if self.tally.last != self._seen:
            self._seen, self._seen_at = self.tally.last, time.monotonic()
        self._left = self._count()

    def _count(self) -> int:
        """Count the work under way; the books, which are many, are read when nothing moves."""
        if time.monotonic() - self._seen_at > _STILL:
            return sum(1 for _ in self._open())
        return sum(1 for _ in self._undecided()) or 1

    def left(self) -> int:
        """The amount of work under way; while something moves, at least 1."""
        return self._left

    def result(self) -> Balance:
        """The balance at the end of the run."""
        cases = list(self._cases())
        asks = [errand.ask for errand in self._errands_all()]
        problems = [*self._open(), *self._unmeant()]
        self._event_stores.close()
        return Balance(
            commands=len(self._wishes),
            ends=self._example.reckon(asks).ends,
            cases=Counter(case.status for case in cases),
            letters=Counter(f"{one.event_type}, {one.error_type}" for one in self.letters),
            story=story(self.app, cases, self._example.STORY),
            problems=problems,
        )

    def _errands_all(self) -> Iterator[Errand]:
        return chain(self._opening, self._wishes)

    def _open(self) -> Iterator[str]:
        """Yield what has not ended, or is wrong; the books are asked once all is decided."""
        undecided = list(self._undecided())
        yield from undecided
        for letter in self.letters:
            if letter.status in UNDER_WAY:
                yield f"the dead letter of {letter.event_id} still waits: {letter.status}"
        for case in self._cases():
            if case.status is RejectionStatus.TOLD:
                yield f"{case.source} has not answered the rejection of its {case.command_type}"
        if not undecided:
            yield from self._example.reckon([one.ask for one in self._errands_all()]).problems

    def _undecided(self) -> Iterator[str]:
        for errand in self._errands_all():
            if not self._is_decided(errand):
                kind, to = event_type_of(errand.ask.command), errand.address
                yield f"{kind} {errand.id} to {to} was neither decided nor dead-lettered"

    def _is_decided(self, errand: Errand) -> bool:
        if errand.id in self._decided:
            return True
        found = self._event_stores.books.read(errand.address, cause=errand.id).decision is not None
        if found or any(letter.event_id == errand.id for letter in self.letters):
            self._decided.add(errand.id)
        return errand.id in self._decided

    def _unmeant(self) -> Iterator[str]:
        """Yield the dead letters that the example does not mean to have."""
        meant = {errand.id for errand in self._wishes if errand.ask.may_be_refused}
        for letter in self.letters:
            if letter.event_id not in meant:
                said = f"{letter.error_type}: {letter.error_message}"
                yield f"{letter.handler_name} {letter.event_id} is a dead letter: {said}"

    def _cases(self) -> Iterator[Case]:
        """Yield the rejections of this run, the newest first: the log is shared."""
        before = None
        while page := self._event_stores.rejections.cases(CaseFilter(), limit=_PAGE, before=before):
            for case in page:
                if case.correlation_id.startswith(f"{self.app.run.id}:"):
                    yield case
            before = (page[-1].rejected_at, page[-1].id)
            if page[-1].rejected_at < self._began:
                return
