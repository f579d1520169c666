"""What a demo run publishes, how far it is, and whether it adds up."""

from __future__ import annotations

import importlib
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from celery import Celery

from angzarr.analysis.ledger.entry import Entry as Filed
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.demo.journal import (
    PUBLISHED,
    Account,
    JournalCounts,
    LedgerState,
    Pair,
    account,
    waiting,
)
from angzarr.demo.view import summary
from angzarr.errors import ConfigurationError, PublishIncomplete
from angzarr.facts.fact import Fact

#: The share of the events that is published once more with the same id.
TWICE: Final = 0.05
#: How many other events go in between.
LATER: Final = 12
#: Publishing is spread over this many seconds, so that people see something; a few events are not
#: held back longer than PAUSE each.
SPREAD: Final = 6.0
PAUSE: Final = 0.05
#: How often an event that not every handler was sent is published again; that is safe.
TRIES: Final = 5

T = TypeVar("T")


class Item(NamedTuple):
    """One event to publish."""

    id: str
    type: str
    event: Any
    root: str


def of_examples(run_id: str, count: int, seed: int) -> list[Item]:
    """*count* events of the examples' shop and card room."""
    traffic = importlib.import_module("traffic")
    return [
        Item(f"{run_id}:{number:05}", event_type, event, root)
        for number, (event_type, event, root) in enumerate(traffic.day(count, seed))
    ]


def of_file(file: Path, run_id: str, count: int | None) -> list[Item]:
    """The first *count* events of *file*: a JSON object with type and data on each line."""
    with file.open(encoding="utf-8") as lines:
        written = [
            _parsed(file, number, line) for number, line in enumerate(lines, 1) if line.strip()
        ]
    if not written:
        msg = f"{file} holds no events: write one JSON object with type and data on each line"
        raise ConfigurationError(msg)
    return [
        Item(f"{run_id}:{number:05}", event_type, data, f"e-{number:05}")
        for number, (event_type, data) in enumerate(written[:count])
    ]


def _parsed(file: Path, number: int, line: str) -> tuple[str, Any]:
    try:
        parsed = json.loads(line)
        return str(parsed["type"]), parsed["data"]
    except (ValueError, TypeError, KeyError) as error:
        msg = (
            f'line {number} of {file} is not an event: write {{"type": "…", "data": {{…}}}}'
            f" ({type(error).__name__}: {error})"
        )
        raise ConfigurationError(msg) from error


def with_duplicates(items: Iterable[T], seed: int) -> Iterator[T]:
    """Yield *items*, some of them once more a little later."""
    dice = random.Random(f"duplicates {seed}")  # noqa: S311 - to be repeatable, not secret
    again: list[tuple[int, T]] = []
    number = 0
    for number, item in enumerate(items):
        yield item
        if dice.random() < TWICE:
            again.append((number + dice.randint(0, LATER), item))
        due = [late for at, late in again if at <= number]
        again = [(at, late) for at, late in again if at > number]
        yield from due
    yield from (late for _, late in again)


class PublisherThread(threading.Thread, Generic[T]):
    """Publishes in the background, some items twice; `error` says why it ended early.

    *before* is called first, with an event that is set when it is to end.
    """

    def __init__(
        self,
        items: Sequence[T],
        publish: Callable[[T], None],
        seed: int,
        *,
        before: Callable[[threading.Event], object] = lambda _stopped: None,
    ) -> None:
        super().__init__(name="demo-publisher", daemon=True)
        self._items = list(with_duplicates(items, seed))
        self._publish = publish
        self._before = before
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Publish everything, in order."""
        try:
            self._before(self._stopped)
            began, pause = time.monotonic(), min(SPREAD / len(self._items), PAUSE)
            for number, item in enumerate(self._items):
                early = began + number * pause - time.monotonic()
                if self._stopped.wait(max(early, 0)):
                    return
                again_if_incomplete(self._publish, item)
        except Exception as error:  # noqa: BLE001 - told by the thread that watches
            self.error = error

    def stop(self) -> None:
        """Publish no more."""
        self._stopped.set()
        self.join()


def again_if_incomplete(publish: Callable[[T], None], item: T) -> None:
    """Publish *item*, and again if not every handler was sent it: that is safe."""
    for _ in range(TRIES - 1):
        try:
            return publish(item)
        except PublishIncomplete:
            time.sleep(0.5)
    return publish(item)


class ScriptResult(Protocol):
    """How a run ended."""

    @property
    def adds_up(self) -> bool:
        """Whether nothing is lost, doubled or contradicted."""

    def lines(self) -> Sequence[str]:
        """The lines that are printed at the end."""


class DemoScript(ABC):
    """One run's traffic and account. `tally`, `letters` and `entries` hold the last look."""

    def __init__(self, app: Celery, publisher: PublisherThread[Any], what: str) -> None:
        self.app = app
        self.publisher = publisher
        #: What is published, for the title.
        self.what = what
        self.tally = JournalCounts()
        self.letters: list[Filed] = []
        self.entries: dict[Pair, LedgerState] = {}

    def look(self, ledger: Ledger) -> None:
        """See how far the run is; raises Unavailable."""
        self.tally.add(self.app.journal.read(self.tally.last))
        self.letters = list(self._filed(ledger))
        self.entries = {
            Pair(one.handler_name, one.event_id): LedgerState(
                status=one.status, replays=one.replays
            )
            for one in self.letters
        }

    def _filed(self, ledger: Ledger) -> Iterator[Filed]:
        """Yield what the ledger has of this run."""
        for domain in self.app.ops.dead_letter_domains():
            after, more = "", True
            while more:
                page = ledger.get_failed_events(
                    EntryFilter(domain=domain), status=None, limit=LONGEST_PAGE, after=after
                )
                yield from filter(self.is_ours, page.entries)
                after, more = page.next, bool(page.next)

    @abstractmethod
    def is_ours(self, entry: Filed) -> bool:
        """True if *entry* is of this run: ledgers are shared."""

    @abstractmethod
    def left(self) -> int:
        """The amount that has not ended, by the last look; a hint when to stop looking."""

    @abstractmethod
    def result(self) -> ScriptResult:
        """The result of the run, once nothing more is looked for."""


#: Seconds in which the last facts reach their database, and between two looks at them.
_FACTS: Final = 5.0
_LOOK: Final = 0.25
_FACTS_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Accounted:
    """An account with its words."""

    account: Account

    @property
    def adds_up(self) -> bool:
        """Whether every pair is accounted for."""
        return self.account.adds_up

    def lines(self) -> list[str]:
        """The lines of the summary."""
        return summary(self.account)


class EventScript(DemoScript):
    """Publishes events and writes a line in the journal for each handler that must have got it."""

    def __init__(self, app: Celery, items: list[Item]) -> None:
        publisher = PublisherThread(items, self._publish, app.run.seed)
        super().__init__(app, publisher, f"{len(items)} events")

    def _publish(self, item: Item) -> None:
        self.app.publish(item.event, type=item.type, id=item.id, root=item.root, check=False)
        for handler in self.app.takers[item.type]:
            self.app.journal.write(PUBLISHED, Pair(handler, item.id))

    def is_ours(self, entry: Filed) -> bool:
        """True if the event's id is one of this run's."""
        return entry.event_id.startswith(f"{self.app.run.id}:")

    def left(self) -> int:
        """The number of pairs that are under way."""
        return waiting(self.tally, self.entries)

    def result(self) -> Accounted:
        """The account, once the last facts are written."""
        from angzarr.adapters.sql.facts.log import SqlFactLog

        log = SqlFactLog(self.app.run.facts)
        try:
            end = time.monotonic() + _FACTS
            while True:
                judged = account(self.tally, self.entries, _outcomes(log))
                if judged.adds_up or time.monotonic() > end:
                    return Accounted(judged)
                time.sleep(_LOOK)
        finally:
            log.close()


def _outcomes(log: Any) -> dict[Pair, Counter[str]]:
    """The number of times that the facts have each outcome of each pair."""
    told: dict[Pair, Counter[str]] = defaultdict(Counter)
    page: list[Fact] = log.read(limit=_FACTS_PAGE)
    while page:
        for fact in page:
            pair = Pair(fact.tool_id or "", str(fact.event_id))
            told[pair][str(fact.data.get("outcome"))] += 1
        page = log.read(after=page[-1].id, limit=_FACTS_PAGE)
    return told
