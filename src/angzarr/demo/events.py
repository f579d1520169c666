"""Events: the script of the ordinary demo, which accounts for every (event, handler) pair."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Final

from angzarr.analysis.ledger.entry import Entry as Filed
from angzarr.demo.account import Account, account, waiting
from angzarr.demo.journal import PUBLISHED, Pair
from angzarr.demo.script import Script
from angzarr.demo.traffic import Item, Publisher
from angzarr.demo.view import summary
from angzarr.facts import Fact

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
        """Return the summary."""
        return summary(self.account)


class EventScript(Script):
    """Publishes events and writes a line in the journal for each handler that must have got it."""

    def __init__(self, app: Any, items: list[Item]) -> None:
        publisher = Publisher(items, self._publish, app.run.seed)
        super().__init__(app, publisher, f"{len(items)} events")

    def _publish(self, item: Item) -> None:
        self.app.publish(item.event, type=item.type, id=item.id, root=item.root, check=False)
        for handler in self.app.takers[item.type]:
            self.app.journal.write(PUBLISHED, Pair(handler, item.id))

    def is_ours(self, entry: Filed) -> bool:
        """Tell it by the event's id."""
        return entry.event_id.startswith(f"{self.app.run.id}:")

    def left(self) -> int:
        """Return how many pairs are under way."""
        return waiting(self.tally, self.entries)

    def result(self) -> Accounted:
        """Return the account, once the last facts are written."""
        from angzarr.adapters.sql.delivery.facts import SqlFactLog

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
    """Return how often the facts tell of each outcome of each pair."""
    told: dict[Pair, Counter[str]] = defaultdict(Counter)
    page: list[Fact] = log.read(limit=_FACTS_PAGE)
    while page:
        for fact in page:
            pair = Pair(fact.tool_id or "", str(fact.data.get("event_id")))
            told[pair][str(fact.data.get("outcome"))] += 1
        page = log.read(after=page[-1].id, limit=_FACTS_PAGE)
    return told
