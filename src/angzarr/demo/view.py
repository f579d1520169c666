"""View: the demo's live table, its plain lines where no terminal is, and the summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from angzarr.analysis.ledger.entry import Status
from angzarr.demo.journal import Account, JournalCounts, LedgerState, Pair

#: All columns with their headings, broken so that the table fits into 80 characters.
_COLUMNS: Final = {
    "published": "pub-\nlished",
    "handled": "hand-\nled",
    "skipped": "skip-\nped",
    "duplicate": "dupli-\ncate",
    "retried": "re-\ntried",
    "postponed": "post-\nponed",
    "dead_lettered": "dead-\nletter",
    "replayed": "re-\nplayed",
    "in ledger": "in\nledger",
}
_STYLES: Final = {
    "handled": "green",
    "retried": "yellow",
    "dead_lettered": "red",
    "in ledger": "red",
    "replayed": "cyan",
}
#: Characters that the table needs to show every name.
_WIDEST: Final = 92
#: Seconds between two plain lines.
_EVERY: Final = 2.0
#: The most problems that are printed.
_MOST: Final = 50

Rows = Mapping[str, Counter[str]]


def rows(tally: JournalCounts, entries: Mapping[Pair, LedgerState]) -> Rows:
    """The columns of each handler."""
    handlers = sorted({pair.handler for pair in tally.published})
    counted: dict[str, Counter[str]] = {handler: Counter() for handler in handlers}
    for pair in tally.published:
        counted[pair.handler]["published"] += 1
    for (handler, outcome), times in tally.outcomes.items():
        counted.setdefault(handler, Counter())[outcome] += times
    for pair, entry in entries.items():
        row = counted.setdefault(pair.handler, Counter())
        row["replayed"] += entry.replays
        row["in ledger"] += entry.status not in (Status.RESOLVED, Status.SKIPPED)
    return counted


class View:
    """Shows a run while it goes on; use it as a context."""

    def __init__(self, console: Console, title: str, *, plain: bool) -> None:
        self._console = console
        self._title = title
        self._began = time.monotonic()
        self._said = self._began - _EVERY
        self._live = None if plain else Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """How long the run lasts already."""
        return time.monotonic() - self._began

    def show(self, tally: JournalCounts, entries: Mapping[Pair, LedgerState], doing: str) -> None:
        """Show how far the run is."""
        counted = rows(tally, entries)
        if self._live is not None:
            self._live.update(self._table(tally, counted, doing))
        elif time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            self._console.print(self._line(counted, doing), soft_wrap=True, highlight=False)

    def final(self, tally: JournalCounts, entries: Mapping[Pair, LedgerState], doing: str) -> Table:
        """The table as it stays on the screen."""
        return self._table(tally, rows(tally, entries), doing)

    def _line(self, counted: Rows, doing: str) -> str:
        total = _total(counted)
        told = " · ".join(f"{name.replace('_', '-')} {total[name]}" for name in _COLUMNS)
        return f"{self.seconds:5.1f} s  {told}  ({doing})"

    def _table(self, tally: JournalCounts, counted: Rows, doing: str) -> Table:
        rate = sum(tally.outcomes.values()) / max(self.seconds, 0.001)
        caption = f"{doing} · {self.seconds:.1f} s · {rate:.0f} deliveries a second"
        table = Table(
            title=self._title,
            caption=caption,
            show_footer=True,
            title_style="bold",
            box=box.SIMPLE_HEAD,
            padding=0,
            width=min(self._console.width, _WIDEST),
        )
        total = _total(counted)
        table.add_column("\nhandler", footer="all", no_wrap=True, ratio=1)
        for name, heading in _COLUMNS.items():
            table.add_column(
                heading,
                footer=str(total[name]),
                justify="right",
                style=_STYLES.get(name),
                min_width=max(map(len, heading.split("\n"))),
            )
        for handler, row in counted.items():
            table.add_row(handler, *(str(row[name] or "·") for name in _COLUMNS))
        return table


def _total(counted: Rows) -> Counter[str]:
    return sum((Counter(row) for row in counted.values()), Counter())


def summary(account: Account) -> list[str]:
    """The lines that account for everything published."""
    said = account
    lines = [
        f"{said.events} events made {said.published} (event, handler) pairs:",
        f"  handled        {said.handled:6}   of them {said.healed} by a replay",
        f"  skipped        {said.skipped:6}",
        f"  in the ledger  {said.in_ledger:6}   waiting for a person",
        f"  still waiting  {said.waiting:6}",
        f"  lost           {said.lost:6}",
        f"  handled twice  {said.twice:6}",
    ]
    if said.adds_up:
        sum_ = f"{said.handled} + {said.skipped} + {said.in_ledger}"
        return [*lines, f"Every pair is accounted for: {said.published} = {sum_}."]
    more = len(said.problems) - _MOST
    rest = [f"  … and {more} more"] if more > 0 else []
    shown = [f"  {problem}" for problem in said.problems[:_MOST]]
    return [*lines, f"NOT ACCOUNTED FOR ({len(said.problems)}):", *shown, *rest]
