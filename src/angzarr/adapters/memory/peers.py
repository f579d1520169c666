"""How other events fare, from a ledger in this process: for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.ledger import Ledger
from angzarr.analysis.peers import BY_REPLAY, MOST, Fared, Peers, PeersSeen


class MemoryPeers(Peers):
    """Looks through all pages of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime
    ) -> PeersSeen:
        """Count what is asked after."""
        entries = list(self._entries())

        def fared(name: str, key: Callable[[Entry], str]) -> Fared:
            return _fared([entry for entry in entries if key(entry) == name][:MOST], since)

        return PeersSeen(
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


def _fared(entries: list[Entry], since: datetime) -> Fared:
    return Fared(
        events=len(entries),
        failed=sum(
            one.last_failed_at >= since and one.status is not Status.RESOLVED for one in entries
        ),
        handled=sum(_handled(one, since) for one in entries),
    )


def _handled(entry: Entry, since: datetime) -> bool:
    by_replay = entry.status is Status.RESOLVED and entry.resolved_by.startswith(BY_REPLAY)
    return by_replay and entry.resolved_at is not None and entry.resolved_at >= since
