"""The fleet: who runs what at this moment, and what waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final

from angzarr.aggregates.book import EventStore
from angzarr.doctor import fleet_rules
from angzarr.doctor.finding import Finding, Probe
from angzarr.doctor.fleet_rules import FleetSeen
from angzarr.doctor_probes import Target, databases, redis
from angzarr.doctor_probes.databases import members
from angzarr.errors import Unavailable
from angzarr.maintenance.schema_versions import SchemaStanding
from angzarr.projections.ordered_handler import Ordered
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import ordering as ordering_wiring

#: Aggregates whose lanes are looked at, of each handler.
_BOOKS: Final = 1_000
_AT: Final = "fleet"


def probes(patient: Target) -> Iterator[Probe]:
    """Return a look at the register of the fleet, and one at the histories of ordered handlers."""
    if not patient.ours:
        return

    yield Probe(at=_AT, look=lambda: _if_there(lambda: _fleet(patient)), **redis.failing(patient))
    if ordered := _ordered(patient):
        look = partial(_over_history, patient, ordered)
        yield Probe(at="event books", look=lambda: _if_there(look))


def _if_there(look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what *look* finds; nothing where its server is away, of which another probe tells."""
    try:
        return list(look())
    except Unavailable:
        return []


def _fleet(patient: Target) -> Iterator[Finding]:
    handlers = _handlers(patient)
    yield from fleet_rules.findings(
        FleetSeen(
            at=_AT,
            members=members(patient),
            handlers=handlers,
            waiting=_waiting(patient, sorted({*handlers.values(), *patient.app.amqp.queues})),
        )
    )


def _handlers(patient: Target) -> dict[str, str]:
    app = patient.app
    names = [one.name for one in app.known_handlers() if not one.name.startswith("celery.")]
    return {name: app.queue_for(name) for name in names}


def _waiting(patient: Target, queues: list[str]) -> dict[str, int]:
    """Return what waits; of a broker that is away nothing, which another probe tells."""
    try:
        return redis.counts(patient, queues)
    except Unavailable:
        return {}


def _ordered(patient: Target) -> list[Ordered]:
    known = patient.app.known_handlers()
    return [Ordered(one.name, one.order) for one in known if one.order is not None]


def _over_history(patient: Target, ordered: list[Ordered]) -> Iterator[Finding]:
    books, lanes = databases.standing(patient, "books"), databases.standing(patient, "ordering")
    if books is None or books.standing is not SchemaStanding.CURRENT:
        return  # no books, or tables that another probe tells of
    if lanes is not None and lanes.standing not in (SchemaStanding.CURRENT, SchemaStanding.MISSING):
        return
    made = lanes is not None and lanes.standing is SchemaStanding.CURRENT
    store = books_wiring.open_event_store(patient.settings, patient.broker_url)
    with closing(store):
        before = {one.name: _events(patient, store, one, made=made) for one in ordered}
    over = {name: number for name, number in before.items() if number}
    yield from fleet_rules.over_history(FleetSeen(at=_AT, over_history=over))


def _events(patient: Target, store: EventStore, one: Ordered, *, made: bool) -> int:
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
