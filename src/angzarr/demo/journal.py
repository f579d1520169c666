"""The demo's witnesses: a journal of every call, and the account of every published pair.

An account adds up if published = handled + skipped + in the ledger, none lost, none handled
twice. The framework's own counters are not used.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from angzarr.adapters.sql.engine.sqlite_files import make_private
from angzarr.analysis.ledger.entry import Status
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import WORDS, Delivery, Outcome
from angzarr.errors import Postpone, RetryLater, Skip

PUBLISHED: Final = "published"
BEGAN: Final = "began"
FINISHED: Final = "finished"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
ASKED: Final = "asked to be run later"
#: Written by a hook, after the framework settled a delivery; only the live table believes it.
SETTLED: Final = "settled"

_SCHEMA = """
pragma journal_mode = wal;
pragma synchronous = off;
create table lines (number integer primary key, what text, handler text, event_id text,
                    detail text, replay int);
"""


class Pair(NamedTuple):
    """An event and one of its handlers: the unit of accounting."""

    handler: str
    event_id: str


class JournalLine(NamedTuple):
    """One line of the journal."""

    number: int
    what: str
    pair: Pair
    detail: str
    replay: int


class Journal:
    """Appends lines and reads them; safe in any thread, and after a fork."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._opened: tuple[int, sqlite3.Connection] | None = None

    def create(self) -> None:
        """Make the file; once, before anybody else opens it."""
        with self._lock:
            self._connection().executescript(_SCHEMA)

    def write(self, what: str, pair: Pair, detail: str = "", replay: int = 0) -> None:
        """Append one line; it outlives this process."""
        with self._lock:
            self._connection().execute(
                "insert into lines (what, handler, event_id, detail, replay)"
                " values (?, ?, ?, ?, ?)",
                (what, *pair, detail, replay),
            )

    def read(self, after: int = 0) -> list[JournalLine]:
        """The lines behind number *after*, in the order in which they were written."""
        with self._lock:
            rows = self._connection().execute(
                "select * from lines where number > ? order by number", (after,)
            )
            return [
                JournalLine(number, what, Pair(handler, event_id), detail, replay)
                for number, what, handler, event_id, detail, replay in rows
            ]

    def close(self) -> None:
        """Close this process's connection."""
        with self._lock:
            if self._opened is not None and self._opened[0] == os.getpid():
                self._opened[1].close()
            self._opened = None

    @contextmanager
    def run_of(self, context: Context) -> Iterator[None]:
        """Write down that a handler began, and how its call ended."""
        pair = Pair(context.delivery.handler, context.event.id)
        self.write(BEGAN, pair, str(context.attempt), context.replay)
        try:
            yield
        except Skip as said:
            self.write(SKIPPED, pair, str(said), context.replay)
            raise
        except (Postpone, RetryLater) as said:
            self.write(ASKED, pair, str(said), context.replay)
            raise
        except BaseException as error:
            self.write(FAILED, pair, type(error).__name__, context.replay)
            raise
        self.write(FINISHED, pair, replay=context.replay)

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None or self._opened[0] != os.getpid():
            make_private(str(self._file))
            opened = sqlite3.connect(
                self._file, timeout=30, isolation_level=None, check_same_thread=False
            )
            opened.execute("pragma synchronous = off")  # it must outlive a process, not a power cut
            self._opened = (os.getpid(), opened)
        return self._opened[1]


class JournalHook:
    """Writes each settled delivery down, for the live table."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def attempt(self, _delivery: Delivery, /) -> AbstractContextManager[object]:
        """See nothing: the handlers are watched more closely."""
        return nullcontext()

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Write the outcome's word."""
        pair = Pair(delivery.handler, delivery.event.id)
        self._journal.write(SETTLED, pair, WORDS[type(outcome)], delivery.position.replay)


#: Entries whose replay has not ended, or which wait for a decision.
UNDER_WAY: Final = frozenset({Status.FAILED, Status.WAITING, Status.RETRYING})
#: Outcomes after which a message is gone from the broker for good.
ENDINGS: Final = frozenset({"handled", "skipped", "duplicate", "dead_lettered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What the ledger says of a pair."""

    status: Status
    replays: int


@dataclass(slots=True)
class JournalCounts:
    """The lines of the journal, counted."""

    #: Pair → how often the event was published.
    published: Counter[Pair] = field(default_factory=Counter)
    began: Counter[Pair] = field(default_factory=Counter)
    finished: Counter[Pair] = field(default_factory=Counter)
    skipped: Counter[Pair] = field(default_factory=Counter)
    #: Pair → settled deliveries that ended it; (handler, outcome) → settled deliveries.
    endings: Counter[Pair] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Pairs that became a dead letter at least once.
    died: set[Pair] = field(default_factory=set)
    last: int = 0

    def add(self, lines: Iterable[JournalLine]) -> None:
        """Count more *lines*."""
        counters = {
            PUBLISHED: self.published,
            BEGAN: self.began,
            FINISHED: self.finished,
            SKIPPED: self.skipped,
        }
        for line in lines:
            self.last = line.number
            if line.what in counters:
                counters[line.what][line.pair] += 1
            elif line.what == SETTLED:
                self._settled(line)

    def _settled(self, line: JournalLine) -> None:
        self.outcomes[line.pair.handler, line.detail] += 1
        if line.detail in ENDINGS:
            self.endings[line.pair] += 1
        if line.detail == "dead_lettered":
            self.died.add(line.pair)


def waiting(tally: JournalCounts, entries: Mapping[Pair, LedgerState]) -> int:
    """The number of pairs that have not ended yet; a hint when to stop looking, not the account."""
    return sum(not _at_end(tally, entries, pair) for pair in tally.published)


def _at_end(tally: JournalCounts, entries: Mapping[Pair, LedgerState], pair: Pair) -> bool:
    entry = entries.get(pair)
    if entry is None:
        return tally.endings[pair] >= tally.published[pair] and pair not in tally.died
    messages = tally.published[pair] + entry.replays
    return tally.endings[pair] >= messages and entry.status not in UNDER_WAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The sum of a run: where each pair ended, and each one about which something is wrong."""

    events: int
    published: int
    handled: int
    #: Handled by a replay from the dead-letter queue; among `handled`.
    healed: int
    skipped: int
    in_ledger: int
    waiting: int
    lost: int
    twice: int
    problems: tuple[str, ...]

    @property
    def adds_up(self) -> bool:
        """Whether nothing is lost, doubled or contradicted."""
        ended = self.handled + self.skipped + self.in_ledger
        return not self.problems and self.published == ended


def account(
    tally: JournalCounts, entries: Mapping[Pair, LedgerState], facts: Mapping[Pair, Counter[str]]
) -> Account:
    """The end of every pair of *tally*, and problems; *facts* counts the outcomes of each pair."""
    ends = {pair: _end(tally, entries.get(pair), pair) for pair in tally.published}
    problems = [
        *(_named(pair, problem) for pair in sorted(ends) for problem in _wrong(
            tally, entries.get(pair), facts.get(pair, Counter()), pair)),
        *(_named(pair, "was never published") for pair in sorted(_strays(tally, entries))),
    ]  # fmt: skip
    count = Counter(ends.values())
    return Account(
        events=len({pair.event_id for pair in ends}),
        published=len(ends),
        handled=count["handled"],
        healed=sum(ends[pair] == "handled" for pair in ends.keys() & entries.keys()),
        skipped=count["skipped"],
        in_ledger=count["in the ledger"],
        waiting=count["waiting"],
        lost=count["lost"],
        twice=sum(tally.finished[pair] > 1 for pair in ends),
        problems=tuple(problems),
    )


def _end(tally: JournalCounts, entry: LedgerState | None, pair: Pair) -> str:
    if tally.finished[pair]:
        return "handled"
    if tally.skipped[pair]:
        return "skipped"
    if entry is None or entry.status is Status.RESOLVED:
        return "lost"
    return "waiting" if entry.status in UNDER_WAY else "in the ledger"


def _wrong(
    tally: JournalCounts, entry: LedgerState | None, told: Counter[str], pair: Pair
) -> Iterator[str]:
    """Yield the problems of *pair*, one sentence each."""
    finished, skipped, end = tally.finished[pair], tally.skipped[pair], _end(tally, entry, pair)
    if finished + skipped > 1:
        yield f"ran to its end {finished} times and was skipped {skipped} times"
    if end == "lost":
        ran = f"began {tally.began[pair]} times" if tally.began[pair] else "never ran"
        yield f"is lost: it {ran}, and is not in the ledger"
    if end == "waiting" and entry is not None:
        yield f"still waits: the ledger says {entry.status}"
    closed = {Status.RESOLVED, Status.SKIPPED}
    if end in ("handled", "skipped") and entry is not None and entry.status not in closed:
        yield f"was {end}, yet the ledger says {entry.status}"
    expected = {"handled": "handled", "skipped": "skipped", "in the ledger": "dead_lettered"}
    if end in expected and not told[expected[end]]:
        yield f"is {end}, but no fact says so"
    if told["handled"] > 1:
        yield f"is told as handled by {told['handled']} facts"


def _strays(tally: JournalCounts, entries: Mapping[Pair, LedgerState]) -> set[Pair]:
    return ({*tally.began, *entries}) - tally.published.keys()


def _named(pair: Pair, problem: str) -> str:
    return f"{pair.event_id} for {pair.handler} {problem}"
