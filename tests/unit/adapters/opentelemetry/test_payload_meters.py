from __future__ import annotations

from datetime import timedelta

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.adapters.opentelemetry.payload_meters import PayloadMeters
from angzarr.analysis.ledger.payload_upkeep import UnneededBodies
from angzarr.payloads.collector import CollectionTerms, PayloadCollector
from angzarr.payloads.holders import PayloadHold, holding
from angzarr.testing import FakeClock
from memory_payloads import MemoryPayloadStore


def told_by(reader):
    """All that was measured, by name and state."""
    found = reader.get_metrics_data()
    metrics = found.resource_metrics[0].scope_metrics[0].metrics if found else []
    return {
        (metric.name, *point.attributes.values()): point.value
        for metric in metrics
        for point in metric.data.data_points
        if point.value
    }


def test_what_is_deleted_is_counted_and_what_is_left_is_shown():
    clock, reader = FakeClock(), InMemoryMetricReader()
    holders, store = MemoryPayloadHolders(clock), MemoryPayloadStore(clock)
    for body in (b"held", b"free", b"free too"):
        uri = store.put(body, holding(holders, "me")).uri
        if body != b"held":
            holders.release([PayloadHold(uri, "me")])
    provider = MeterProvider([reader])
    terms = CollectionTerms(grace=timedelta(days=2))
    collector = PayloadCollector(register=holders, store=store, terms=terms)
    bodies = UnneededBodies(collector, PayloadMeters(provider))
    assert told_by(reader) == {}
    bodies.remove(clock.now())
    shown = {("payload_bodies", "held"): 1, ("payload_bytes", "held"): 4}
    free = {("payload_bodies", "free"): 2, ("payload_bytes", "free"): 12}
    assert told_by(reader) == shown | free
    clock.advance(timedelta(days=2))
    bodies.remove(clock.now())
    deleted = {("payload_bodies_deleted",): 2, ("payload_bytes_deleted",): 12}
    assert told_by(reader) == shown | deleted
    provider.shutdown()
