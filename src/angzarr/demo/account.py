"""Account: does every (event, handler) that was published stand somewhere, and once? Pure.

published = handled + skipped + in the ledger, none lost, none handled twice (decisions 31). The
witnesses are the handlers' journal, the ledger and the facts; the framework's counters are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from angzarr.analysis.ledger.entry import Status
from angzarr.demo import journal
from angzarr.demo.journal import Line, Pair

#: Entries whose replay has not ended, or about which nobody has decided.
UNDER_WAY: Final = frozenset({Status.FAILED, Status.WAITING, Status.RETRYING})
#: Outcomes after which a message is gone from the broker for good.
ENDINGS: Final = frozenset({"handled", "skipped", "duplicate", "dead_lettered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger says of a pair."""

    status: Status
    replays: int


@dataclass(slots=True)
class Tally:
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

    def add(self, lines: Iterable[Line]) -> None:
        """Count more *lines*."""
        counters = {
            journal.PUBLISHED: self.published,
            journal.BEGAN: self.began,
            journal.FINISHED: self.finished,
            journal.SKIPPED: self.skipped,
        }
        for line in lines:
            self.last = line.number
            if line.what in counters:
                counters[line.what][line.pair] += 1
            elif line.what == journal.SETTLED:
                self._settled(line)

    def _settled(self, line: Line) -> None:
        self.outcomes[line.pair.handler, line.detail] += 1
        if line.detail in ENDINGS:
            self.endings[line.pair] += 1
        if line.detail == "dead_lettered":
            self.died.add(line.pair)


def waiting(tally: Tally, entries: Mapping[Pair, Entry]) -> int:
    """Return how many pairs are not at their end yet; tells when to stop looking, not what is."""
    return sum(not _at_end(tally, entries, pair) for pair in tally.published)


def _at_end(tally: Tally, entries: Mapping[Pair, Entry], pair: Pair) -> bool:
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
    tally: Tally, entries: Mapping[Pair, Entry], facts: Mapping[Pair, Counter[str]]
) -> Account:
    """Return where every pair of *tally* stands; *facts* counts the outcomes told of each pair."""
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


def _end(tally: Tally, entry: Entry | None, pair: Pair) -> str:
    if tally.finished[pair]:
        return "handled"
    if tally.skipped[pair]:
        return "skipped"
    if entry is None or entry.status is Status.RESOLVED:
        return "lost"
    return "waiting" if entry.status in UNDER_WAY else "in the ledger"


def _wrong(tally: Tally, entry: Entry | None, told: Counter[str], pair: Pair) -> Iterator[str]:
    """Yield what is wrong with *pair*, one sentence each."""
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


def _strays(tally: Tally, entries: Mapping[Pair, Entry]) -> set[Pair]:
    return ({*tally.began, *entries}) - tally.published.keys()


def _named(pair: Pair, problem: str) -> str:
    return f"{pair.event_id} for {pair.handler} {problem}"
