"""How long the slowest page of a ledger with a million entries takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from statistics import median

from harness import ledger_fill
from harness.figure import Figure, Measured
from harness.ledger_fill import NOW, Filled

from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.groups import SqlGroups
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.group import GroupFilter
from angzarr.analysis.ledger.ledger import EntryFilter

ENTRIES = int(os.environ.get("BENCH_LEDGER_ENTRIES", "1000000"))
RUNS = int(os.environ.get("BENCH_RUNS", "7"))

_Look = Callable[[], object]


def looks(filled: Filled) -> Iterator[tuple[str, _Look]]:
    """Return every kind of page by what is asked for."""
    database = LedgerDatabase(filled.engine)
    ledger, groups = SqlLedger(database), SqlGroups(database)
    once = ledger.get_failed_events(status=None, limit=1).entries[0]
    fingerprint = groups.get_groups(limit=1).groups[0].fingerprint
    since, until = NOW - timedelta(days=200), NOW - timedelta(days=190)
    asked = {
        "all": EntryFilter(),
        "handler": EntryFilter(handler_name="shop.handler_1"),
        "domain": EntryFilter(domain="domain-1"),
        "event type": EntryFilter(event_type="Event3"),
        "group": EntryFilter(fingerprint=fingerprint),
        "class": EntryFilter(failure_class=FailureClass.DATA_CORRUPTION),
        "large tenant": EntryFilter(tenant_id="tenant-0"),
        "small tenant": EntryFilter(tenant_id="tenant-499"),
        "handler and domain": EntryFilter(handler_name="shop.handler_37", domain="domain-1"),
        "handler and class": EntryFilter(
            handler_name="shop.handler_37", failure_class=FailureClass.CODE_DEFECT
        ),
        "domain, event type, class": EntryFilter(
            domain="domain-1", event_type="Event97", failure_class=FailureClass.UNKNOWN
        ),
        "handler and large tenant": EntryFilter(
            handler_name="shop.handler_37", tenant_id="tenant-0"
        ),
        "group and small tenant": EntryFilter(fingerprint=fingerprint, tenant_id="tenant-499"),
        "ten days": EntryFilter(since=since, until=until),
        "handler, ten days": EntryFilter(handler_name="shop.handler_1", since=since, until=until),
        "event": EntryFilter(event_id=once.event_id),
        "beginning of an id": EntryFilter(id_prefix=once.id[:8]),
    }
    for name, wanted in asked.items():
        for status in (None, Status.HELD, Status.ESCALATED, Status.RESOLVED):
            where = f"entries by {name}, {status or 'any status'}"
            yield where, partial(ledger.get_failed_events, wanted, status=status)
    yield (
        "entries, a page far back",
        lambda: ledger.get_failed_events(
            status=None, after=f"{(NOW - timedelta(days=300)).isoformat()}~{'8' * 64}"
        ),
    )
    for name, which in {
        "open": GroupFilter(),
        "all": GroupFilter(open_only=False),
        "by handler": GroupFilter(handler_name="shop.handler_59"),
        "by domain": GroupFilter(domain="domain-3"),
        "by owner": GroupFilter(owner="nobody"),
        "by beginning": GroupFilter(prefix=fingerprint[:6]),
    }.items():
        yield f"groups, {name}", partial(groups.get_groups, which, limit=100)
    yield "statistics", ledger.get_failure_stats


def slowest(opened: Callable[[int], AbstractContextManager[Filled]]) -> dict[str, float]:
    """Return for each page the median of its times in milliseconds, the slowest first."""
    with opened(ENTRIES) as filled:
        times = {name: median(_ms(look) for _ in range(RUNS)) for name, look in looks(filled)}
    return dict(sorted(times.items(), key=lambda one: -one[1]))


def measure() -> Measured:
    """Measure both databases; the slower of the two counts."""
    times = {"postgresql": slowest(ledger_fill.postgresql), "sqlite": slowest(ledger_fill.sqlite)}
    tops = {name: next(iter(pages.items())) for name, pages in times.items()}
    worst = max(tops.values(), key=lambda top: top[1])
    return Measured(
        values=[worst[1]],
        detail={
            "entries": f"{ENTRIES:,}",
            "groups": f"{ledger_fill.GROUPS:,}",
            "kinds_of_page": len(times["sqlite"]),
            "runs_a_page": RUNS,
            **{f"slowest_{name}": f"{top[0]}: {top[1]:.1f} ms" for name, top in tops.items()},
            **{f"median_{name}_ms": round(median(p.values()), 2) for name, p in times.items()},
        },
    )


def _ms(look: _Look) -> float:
    began = time.perf_counter()
    look()
    return (time.perf_counter() - began) * 1000


FIGURES = (
    Figure(
        key="ledger_page_ms",
        title="slowest page of a ledger with a million entries",
        unit="ms",
        aim="≤ 100 ms",
        against="no counterpart: an absolute",
        how=(
            "A ledger with a million entries in 2,000 groups of very different size, statuses that"
            " are rare and old, and large and small tenants. Pages of 100 entries by each filter"
            " and by combinations of them, with and without a status, pages of groups and the"
            " statistics; each several times, its median counts, and of those the slowest, on"
            " PostgreSQL and on SQLite."
        ),
        measure=measure,
    ),
)
