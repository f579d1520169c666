"""Script: what a run of the demo publishes, how far that is, and whether it adds up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from angzarr.analysis.ledger.entry import Entry as Filed
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.demo.account import Entry, Tally
from angzarr.demo.journal import Pair
from angzarr.demo.traffic import Publisher


class Result(Protocol):
    """How a run ended."""

    @property
    def adds_up(self) -> bool:
        """Whether nothing is lost, doubled or contradicted."""

    def lines(self) -> Sequence[str]:
        """Return what is printed at the end."""


class Script(ABC):
    """One run's traffic and account. `tally`, `letters` and `entries` tell what was seen last."""

    def __init__(self, app: Any, publisher: Publisher[Any], what: str) -> None:
        self.app = app
        self.publisher = publisher
        #: What is published, for the title.
        self.what = what
        self.tally = Tally()
        self.letters: list[Filed] = []
        self.entries: dict[Pair, Entry] = {}

    def look(self, ledger: Ledger) -> None:
        """See how far the run is; raises Unavailable."""
        self.tally.add(self.app.journal.read(self.tally.last))
        self.letters = list(self._filed(ledger))
        self.entries = {
            Pair(one.handler_name, one.event_id): Entry(status=one.status, replays=one.replays)
            for one in self.letters
        }

    def _filed(self, ledger: Ledger) -> Iterator[Filed]:
        """Yield what the ledger has of this run."""
        for domain in self.app.dead_letter_domains():
            after, more = "", True
            while more:
                page = ledger.get_failed_events(
                    EntryFilter(domain=domain), status=None, limit=LONGEST_PAGE, after=after
                )
                yield from filter(self.is_ours, page.entries)
                after, more = page.next, bool(page.next)

    @abstractmethod
    def is_ours(self, entry: Filed) -> bool:
        """Tell whether *entry* is of this run: ledgers are shared."""

    @abstractmethod
    def left(self) -> int:
        """Return how much is not at its end, by the last look; tells when to stop looking."""

    @abstractmethod
    def result(self) -> Result:
        """Return how it ended, once nothing more is looked for."""
