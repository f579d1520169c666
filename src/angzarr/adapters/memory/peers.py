"""How other events fare, from a ledger in this process: for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import reduce

from angzarr.analysis.ledger.counts import MOST, PeerReport, Peers, PeerStats, stats_of_one
from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.ledger import Ledger


class MemoryPeers(Peers):
    """Looks through all pages of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime
    ) -> PeerReport:
        """Count what is asked after."""
        entries = list(self._entries())

        def fared(name: str, key: Callable[[Entry], str]) -> PeerStats:
            return _fared([entry for entry in entries if key(entry) == name][:MOST], since)

        return PeerReport(
            handlers={name: fared(name, lambda entry: entry.handler_name) for name in handlers},
            groups={name: fared(name, lambda entry: entry.fingerprint) for name in groups},
        )

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""

    def _entries(self) -> Iterable[Entry]:
        after = ""
        while True:
            page = self._ledger.get_failed_events(status=None, limit=1000, after=after)
            yield from page.entries
            if not (after := page.next):
                return


def _fared(entries: Iterable[Entry], since: datetime) -> PeerStats:
    return reduce(PeerStats.plus, (stats_of_one(entry, since) for entry in entries), PeerStats())
