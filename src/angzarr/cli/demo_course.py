"""Course: one run of the demo from its first event to its account."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from rich.console import Console

from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.cli import demo_servers
from angzarr.cli.demo_account import Account, Entry, Tally, account, waiting
from angzarr.cli.demo_fleet import EmbeddedFleet, Fleet, ProcessFleet
from angzarr.cli.demo_journal import Pair
from angzarr.cli.demo_run import Run
from angzarr.cli.demo_traffic import Item, Publisher
from angzarr.cli.demo_view import View
from angzarr.errors import Unavailable
from angzarr.facts import Fact

#: Seconds between two looks at journal and ledger.
_LOOK: Final = 0.25
#: Seconds in which the last facts reach their database.
_FACTS: Final = 5.0
_FACTS_PAGE: Final = 1000


class Course:
    """Publishes, watches and judges one run; `go` once."""

    def __init__(
        self, app: Any, items: list[Item], console: Console, *, plain: bool, timeout: float
    ) -> None:
        self._app = app
        self._run: Run = app.run
        self._console = console
        self._timeout = timeout
        self._tally = Tally()
        self._entries: dict[Pair, Entry] = {}
        self._publisher = Publisher(app, items, self._run.seed)
        self._view = View(console, _title(self._run, len(items)), plain=plain)

    def go(self) -> Account:
        """Run everything and return the account; raises AngzarrError where a server is away."""
        demo_servers.check(self._app)
        ledger = self._app.open_ledger()
        try:
            with self._fleet() as fleet, self._view:
                self._watch(fleet, ledger)
            self._look(ledger)
            facts = self._facts()
        finally:
            ledger.close()
            demo_servers.clean(self._app)
        self._console.print(self._view.final(self._tally, self._entries, "done"))
        return account(self._tally, self._entries, facts)

    @contextmanager
    def _fleet(self) -> Iterator[Fleet]:
        fleet: Fleet = (
            EmbeddedFleet(self._app, self._run)
            if self._run.embedded
            else ProcessFleet(self._run, os.environ)
        )
        try:
            fleet.start()
            self._publisher.start()
            yield fleet
        finally:
            if self._publisher.is_alive():
                self._publisher.stop()
            fleet.stop()

    def _watch(self, fleet: Fleet, ledger: Ledger) -> None:
        """Look until everything is at its end and told, or the time is up."""
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            fleet.check()
            if self._publisher.error is not None:
                raise self._publisher.error
            publishing = self._publisher.is_alive()
            with suppress(Unavailable):  # a look is missed, nothing else
                self._look(ledger)
            left = waiting(self._tally, self._entries)
            doing = "publishing" if publishing else f"{left} still under way"
            self._view.show(self._tally, self._entries, doing)
            if not publishing and left == 0:
                return
            time.sleep(_LOOK)

    def _look(self, ledger: Ledger) -> None:
        self._tally.add(self._app.journal.read(self._tally.last))
        self._entries = _entries(ledger, self._app.dead_letter_domains(), self._run.id)

    def _facts(self) -> dict[Pair, Counter[str]]:
        """Return the outcomes that the facts tell of, once the last ones are written."""
        from angzarr.adapters.sql.facts import SqlFactLog

        log = SqlFactLog(self._run.facts)
        try:
            end = time.monotonic() + _FACTS
            while True:
                found = _outcomes(log)
                judged = account(self._tally, self._entries, found)
                if judged.adds_up or time.monotonic() > end:
                    return found
                time.sleep(_LOOK)
        finally:
            log.close()


def _entries(ledger: Ledger, domains: list[str], run_id: str) -> dict[Pair, Entry]:
    """Return what the ledger says of the run's pairs."""
    found: dict[Pair, Entry] = {}
    for domain in domains:
        after, more = "", True
        while more:
            page = ledger.get_failed_events(
                EntryFilter(domain=domain), status=None, limit=LONGEST_PAGE, after=after
            )
            for entry in page.entries:
                if entry.event_id.startswith(f"{run_id}:"):
                    pair = Pair(entry.handler_name, entry.event_id)
                    found[pair] = Entry(status=entry.status, replays=entry.replays)
            after, more = page.next, bool(page.next)
    return found


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


def _title(run: Run, count: int) -> str:
    from kombu.utils.url import maybe_sanitize_url

    how = "all in this process" if run.embedded else f"on {maybe_sanitize_url(run.broker)}"
    return f"angzarr demo {run.id}: {count} events, {how}"
