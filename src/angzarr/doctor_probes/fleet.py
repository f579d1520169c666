"""The fleet: who runs what at this moment, and what waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final

from angzarr.aggregates.book import EventStore
from angzarr.doctor import fleet_rules
from angzarr.doctor.finding import Finding, Probe
from angzarr.doctor.fleet_rules import FleetSeen
from angzarr.doctor_probes import DoctorTarget, databases, redis
from angzarr.doctor_probes.databases import members
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.facts.act_log import unended_acts
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.outbox import FactOutbox
from angzarr.maintenance.schema_versions import SchemaStanding
from angzarr.projections.ordered_handler import OrderedHandler
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import event_store as ordering_wiring

#: Aggregates whose lanes are looked at, of each handler.
_BOOKS: Final = 1_000
_AT: Final = "fleet"


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """Probes of the register of the fleet, of acts, and of the histories of ordered handlers."""
    if not target.ours:
        return

    yield Probe(at=_AT, look=lambda: _if_there(lambda: _fleet(target)), **redis.failing(target))
    yield Probe(at="acts", look=lambda: _if_there(lambda: _unended(target)))
    if ordered := _ordered(target):
        look = partial(_over_history, target, ordered)
        yield Probe(at="event books", look=lambda: _if_there(look))


def _if_there(look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of *look*; none where its server is away, which another probe reports."""
    try:
        return list(look())
    except Unavailable:
        return []


def _fleet(target: DoctorTarget) -> Iterator[Finding]:
    handlers = _handlers(target)
    yield from fleet_rules.findings(
        FleetSeen(
            at=_AT,
            members=members(target),
            handlers=handlers,
            waiting=_waiting(target, sorted({*handlers.values(), *target.app.amqp.queues})),
            facts_wait=_facts_wait(target),
            acts_wait=_acts_wait(target),
        )
    )


def _handlers(target: DoctorTarget) -> dict[str, str]:
    ops = target.ops
    names = [one.name for one in ops.known_handlers() if not one.name.startswith("celery.")]
    return {name: ops.queue_for(name) for name in names}


def _waiting(target: DoctorTarget, queues: list[str]) -> dict[str, int]:
    """The messages in each queue; none if the broker is away, which another probe reports."""
    try:
        return redis.counts(target, queues)
    except Unavailable:
        return {}


def _facts_wait(target: DoctorTarget) -> timedelta | None:
    """For how long the oldest fact of a delivery has waited; None: none does."""
    if not databases.keeps_claims(target, "fact_outbox"):
        return None
    return _waits(target.ops.fact_outbox)


def _acts_wait(target: DoctorTarget) -> timedelta | None:
    """The same of facts of acts; None also where the ledger is away, or of another release."""
    try:
        revision = databases.standing(target, "ledger")
        if revision is None or revision.standing is not SchemaStanding.CURRENT:
            return None
        with closing(target.ops.open_act_outbox()) as outbox:
            return _waits(lambda: outbox)
    except Unavailable:  # which another probe reports
        return None


def _waits(outbox: Callable[[], FactOutbox]) -> timedelta | None:
    """For how long the oldest fact has waited, by this machine's clock; None: none does."""
    try:
        oldest = outbox().read(1)
        happened = [fact_from_text(one.text).at for one in oldest]
    except (ConfigurationError, ValueError):  # no outbox; or a line that the relay leaves out
        return None
    return datetime.now(UTC) - happened[0] if happened else None


def _unended(target: DoctorTarget) -> Iterator[Finding]:
    """The acts that have no end; nothing where facts are in no table, or one that differs."""
    revision = databases.standing(target, "facts")
    if revision is None or revision.standing is not SchemaStanding.CURRENT:
        return
    with closing(target.ops.open_fact_store(within=target.timeout)) as store:
        found = unended_acts(store, datetime.now(UTC))
    told = [f"{one.data.get('act')} of {one.data.get('subject')}" for one in found]
    yield from fleet_rules.unended(FleetSeen(at="acts", unended=told))


def _ordered(target: DoctorTarget) -> list[OrderedHandler]:
    known = target.ops.known_handlers()
    return [OrderedHandler(one.name, one.order) for one in known if one.order is not None]


def _over_history(target: DoctorTarget, ordered: list[OrderedHandler]) -> Iterator[Finding]:
    books, lanes = databases.standing(target, "books"), databases.standing(target, "ordering")
    if books is None or books.standing is not SchemaStanding.CURRENT:
        return  # no books, or tables that another probe tells of
    if lanes is not None and lanes.standing not in (SchemaStanding.CURRENT, SchemaStanding.MISSING):
        return
    made = lanes is not None and lanes.standing is SchemaStanding.CURRENT
    store = books_wiring.open_event_store(target.settings, target.broker_url)
    with closing(store):
        before = {one.name: _events(target, store, one, made=made) for one in ordered}
    over = {name: number for name, number in before.items() if number}
    yield from fleet_rules.over_history(FleetSeen(at=_AT, over_history=over))


def _events(target: DoctorTarget, store: EventStore, one: OrderedHandler, *, made: bool) -> int:
    """Count the events before the lanes of a handler that has handled nothing; 0 if it has."""
    heads = list(islice(store.heads(sorted(one.order.domains), None, _BOOKS), _BOOKS))
    if not made:
        return sum(head.next_sequence - one.order.first for head in heads)
    stores = ordering_wiring.open_ordering(target.settings, target.broker_url)
    with closing(stores):
        if stores.checkpoints.get(one.task) is not None:
            return 0
        known = stores.lanes.places(one.task, [head.address for head in heads])
    return sum(
        max(head.next_sequence - known.get(head.address, one.order.first), 0) for head in heads
    )
