"""The fleet: who runs what at this moment, and what waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

from angzarr import books_wiring, ordering_wiring
from angzarr.aggregates.event_store import EventStore
from angzarr.doctor import fleet_rules
from angzarr.doctor.finding import Finding
from angzarr.doctor.fleet_rules import FleetSeen
from angzarr.doctor.probe import Probe
from angzarr.errors import Unavailable
from angzarr.examinations import databases, redis
from angzarr.examinations.patient import Patient
from angzarr.examinations.register import members
from angzarr.projections.ordered_handler import Ordered
from angzarr.revisions import Standing

#: Aggregates whose lanes are looked at, of each handler.
_BOOKS: Final = 1_000
_AT: Final = "fleet"


def probes(patient: Patient) -> Iterator[Probe]:
    """Return a look at the register of the fleet, and one at the histories of ordered handlers."""
    if not patient.ours:
        return

    def look() -> Iterator[Finding]:
        handlers = _handlers(patient)
        yield from fleet_rules.findings(
            FleetSeen(
                at=_AT,
                members=members(patient),
                handlers=handlers,
                waiting=_waiting(patient, sorted({*handlers.values(), *patient.app.amqp.queues})),
            )
        )

    yield Probe(at=_AT, look=look)
    if ordered := _ordered(patient):
        yield Probe(at="event books", look=lambda: _over_history(patient, ordered))


def _handlers(patient: Patient) -> dict[str, str]:
    app = patient.app
    names = [one.name for one in app.known_handlers() if not one.name.startswith("celery.")]
    return {name: app.queue_for(name) for name in names}


def _waiting(patient: Patient, queues: list[str]) -> dict[str, int]:
    """Return what waits; of a broker that is away nothing, which another probe tells."""
    try:
        return redis.counts(patient, queues)
    except Unavailable:
        return {}


def _ordered(patient: Patient) -> list[Ordered]:
    known = patient.app.known_handlers()
    return [Ordered(one.name, one.order) for one in known if one.order is not None]


def _over_history(patient: Patient, ordered: list[Ordered]) -> Iterator[Finding]:
    books, lanes = databases.standing(patient, "books"), databases.standing(patient, "ordering")
    if books is None or books.standing is not Standing.CURRENT:
        return  # no books, or tables that another probe tells of
    if lanes is not None and lanes.standing not in (Standing.CURRENT, Standing.MISSING):
        return
    made = lanes is not None and lanes.standing is Standing.CURRENT
    store = books_wiring.open_event_store(patient.settings, patient.broker_url)
    with closing(store):
        before = {one.name: _events(patient, store, one, made=made) for one in ordered}
    over = {name: number for name, number in before.items() if number}
    yield from fleet_rules.over_history(FleetSeen(at=_AT, over_history=over))


def _events(patient: Patient, store: EventStore, one: Ordered, *, made: bool) -> int:
    """Count the events before the lanes of a handler that has handled nothing; 0 if it has."""
    heads = list(islice(store.heads(sorted(one.order.domains), None, _BOOKS), _BOOKS))
    if not made:
        return sum(head.next_sequence - one.order.first for head in heads)
    stores = ordering_wiring.open_ordering(patient.settings, patient.broker_url)
    with closing(stores):
        if stores.checkpoints.get(one.task) is not None:
            return 0
        known = stores.lanes.places(one.task, [head.address for head in heads])
    return sum(
        max(head.next_sequence - known.get(head.address, one.order.first), 0) for head in heads
    )
