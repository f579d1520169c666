"""The script of the billing example: prices change between first failures and replays.

The account compares three witnesses: the desk's own bills and requests, the ledger, and the facts.
"""

from __future__ import annotations

import importlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from celery import Celery

from angzarr.analysis.ledger.entry import Entry as Filed
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.demo.journal import PUBLISHED, UNDER_WAY, Pair
from angzarr.demo.run import script_of
from angzarr.demo.script import DemoScript, PublisherThread, again_if_incomplete
from angzarr.facts.query import CostSum, FactField, FactQuery
from angzarr.wiring.analysis_worker import open_replayer
from angzarr.wiring.configuration import editor_of

#: Who changes prices and replays letters.
_BY: Final = "demo"
#: Seconds in which the last facts reach their database, and between two looks at them.
_FACTS: Final = 5.0
_LOOK: Final = 0.25
#: The most problems that are printed.
_MOST: Final = 50


class Due(NamedTuple):
    """An invoice to publish."""

    id: str
    invoice: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """How a run ended."""

    early: int
    late: int
    billed: int
    waiting: int
    #: Invoices that waited as letters while the prices changed, and were billed by a replay.
    replayed: int
    sums: Sequence[CostSum]
    problems: Sequence[str]

    @property
    def adds_up(self) -> bool:
        """Whether the witnesses agree."""
        return not self.problems

    def lines(self) -> list[str]:
        """The lines that are printed at the end."""
        lines = [
            f"{self.early} invoices were due before the prices changed, {self.late} after:",
            f"  {self.billed:6}  billed",
            f"  {self.waiting:6}  wait in the ledger for a person",
            f"{self.replayed} were dead letters meanwhile: their replays billed by the old prices.",
            "What the gateway took, by facts (angzarr cost report --by config,cause):",
            *map(_cost_line, self.sums),
        ]
        if self.adds_up:
            return [*lines, "Everything adds up."]
        more = len(self.problems) - _MOST
        rest = [f"  … and {more} more"] if more > 0 else []
        shown = [f"  {problem}" for problem in self.problems[:_MOST]]
        return [*lines, f"DOES NOT ADD UP ({len(self.problems)}):", *shown, *rest]


def _cost_line(one: CostSum) -> str:
    config, cause = one.values
    why = f"in runs that failed: {cause}" if cause else "in runs that ended well"
    return f"  {one.amount:8f} {one.currency}  {one.facts:4} requests by {config} {why}"


class BillingScript(DemoScript):
    """Publishes invoices, changes the prices, publishes more, and replays what waits."""

    def __init__(self, app: Celery, count: int) -> None:
        self._example = script_of(app.run)
        self._desk = importlib.import_module("billing").desk
        invoices = self._example.invoices(count, app.run.seed)
        due = [Due(f"{app.run.id}:{number:05}", one) for number, one in enumerate(invoices)]
        late = max(1, int(count * self._example.LATE))
        self._early, self._late = due[:-late] or due, due[-late:]
        publisher = PublisherThread(self._early, self._publish, app.run.seed)
        super().__init__(app, publisher, f"{count} invoices")
        self._billed: Mapping[str, tuple[str, Decimal]] = {}
        self._changed = False
        self._waited: frozenset[str] = frozenset()
        self._put_prices(0)

    def _put_prices(self, number: int) -> None:
        with closing(self.app.ops.open_configurations()) as store:
            prices = json.dumps(self._example.PRICES[number])
            editor_of(store).put("pricing", prices, author=_BY, version=_version(number))

    def _publish(self, due: Due, pins: Mapping[str, str] | None = None) -> None:
        """Publish an invoice; without *pins* its first run pins it."""
        tenant = due.invoice.customer
        self.app.publish(due.invoice, id=due.id, tenant_id=tenant, config_pins=pins)
        self.app.journal.write(PUBLISHED, Pair("billing.charge", due.id))

    def is_ours(self, entry: Filed) -> bool:
        """True if the invoice's id is one of this run's."""
        return entry.event_id.startswith(f"{self.app.run.id}:")

    def look(self, ledger: Ledger) -> None:
        """See how far the run is, and change the prices once all else rests."""
        super().look(ledger)
        self._billed = self._desk.bills()
        if not self._changed and not self.publisher.is_alive() and not self._under_way(self._early):
            self._change(ledger)

    def _change(self, ledger: Ledger) -> None:
        """Change the prices, unblock all cards, replay what waits, and publish the late ones."""
        waiting = [one for one in self.letters if one.event_id not in self._billed]
        self._waited = frozenset(one.event_id for one in waiting)
        self._put_prices(1)
        for due in (*self._early, *self._late):
            if due.invoice.card_blocked:
                self._desk.unblock(due.invoice.customer)
        with ExitStack() as doors:
            replayer = open_replayer(self.app.ops, doors)
            for entry in waiting:
                if (detail := ledger.open(entry.id)) is not None:
                    replayer.replay(detail.entry, detail.failure, by=_BY)
        # Workers may take the old version for the current one for some seconds: these are pinned.
        publish = partial(self._publish, pins={"pricing": _version(1)})
        for due in self._late:
            again_if_incomplete(publish, due)
        self._changed = True

    def left(self) -> int:
        """The number of invoices that have not ended; 1 at least before the prices changed."""
        left = len(self._under_way((*self._early, *self._late)))
        return left if self._changed else max(left, 1)

    def _under_way(self, dues: Sequence[Due]) -> list[Due]:
        status = {letter.event_id: letter.status for letter in self.letters}
        return [
            due
            for due in dues
            if status.get(due.id) in UNDER_WAY
            or (due.id not in self._billed and due.id not in status)
        ]

    def result(self) -> Bill:
        """The account, once the last facts are written."""
        end = time.monotonic() + _FACTS
        with closing(self.app.ops.open_fact_store()) as store:
            while True:
                sums = store.costs(FactQuery(type="cost"), [FactField.CONFIG, FactField.CAUSE])
                problems = [*self._wrong_bills(), *self._wrong_costs(sums)]
                if not problems or time.monotonic() > end:
                    break
                time.sleep(_LOOK)
        resting = [due for due in (*self._early, *self._late) if due.id not in self._billed]
        return Bill(
            early=len(self._early),
            late=len(self._late),
            billed=len(self._billed),
            waiting=len(resting),
            replayed=len(self._waited & self._billed.keys()),
            sums=sums,
            problems=problems,
        )

    def _wrong_bills(self) -> Iterator[str]:
        """Yield what is not billed as it must be, or was lost."""
        for number, dues in enumerate((self._early, self._late)):
            prices = self._example.PRICES[number]
            for due in dues:
                wanted = (_version(number), due.invoice.minutes * Decimal(prices["minute"]))
                found = self._billed.get(due.id)
                if found is not None and found != wanted:
                    yield f"{due.id} was billed {found[1]} by version {found[0]}, not {wanted[1]}"
        for due in self._under_way((*self._early, *self._late)):
            yield f"{due.id} was neither billed nor dead-lettered"

    def _wrong_costs(self, sums: Sequence[CostSum]) -> Iterator[str]:
        """Yield where the facts do not say what the desk's requests have cost."""
        ours = f"{self.app.run.id}:"
        requests = [(one, by) for one, by in self._desk.requests() if one.startswith(ours)]
        made = Counter(version for _, version in requests)
        well = Counter(version for version, _ in self._billed.values())
        for number, prices in enumerate(self._example.PRICES):
            version, fee = _version(number), Decimal(prices["request"])
            mine = [one for one in sums if one.values[0] == f"pricing {version}"]
            told = sum((one.amount for one in mine), Decimal(0))
            failed = sum((one.failed for one in mine), Decimal(0))
            if told != made[version] * fee:
                yield f"facts say {told} by version {version}, {made[version]} requests say else"
            if failed != (made[version] - well[version]) * fee:
                yield f"facts say that failed runs spent {failed} by version {version}"


def _version(number: int) -> str:
    return str(number + 1)
