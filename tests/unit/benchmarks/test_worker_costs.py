"""What becomes of the runs of ours and of bare Celery, where a worker's costs are measured."""

from __future__ import annotations

import pytest
from figures import overheads, worker_costs
from harness.figure import NotMeasured
from peers.catalogue import OURS
from peers.peer import RABBITMQ, REDIS
from peers.runs import Latency, PeerDrain

PREFORK, BARE = worker_costs.PREFORK, worker_costs.BARE


@pytest.fixture
def drains(monkeypatch):
    """What a drain of each costs; a test says which is not through."""
    costs = {OURS.name: (1.0, 60.0), PREFORK.name: (3.0, 50.0), BARE.name: (2.0, 40.0)}
    rates = {overheads.NO_FACTS.name: 100.0, OURS.name: 97.0}
    asked, unfinished = [], []

    def drain(peer, broker, _work, events):
        asked.append((peer.name, broker))
        cpu, child = costs.get(peer.name, (1.0, 1.0))
        return PeerDrain(
            rate=rates.get(peer.name, 1.0), cpu_ms=cpu, pss_mib=1, child_pss_mib=child, rss_mib=1,
            handled=events - (peer.name in unfinished),
        )  # fmt: skip

    for module in (worker_costs, overheads):
        monkeypatch.setattr(module, "drain", drain)
    monkeypatch.setattr("harness.servers.rabbitmq_version", lambda: "3")
    monkeypatch.setattr("harness.servers.redis_version", lambda: "7")
    return asked, unfinished


def test_the_cpu_of_processes_is_the_value_and_that_of_prefork_stands_beside_it(drains):
    asked, _ = drains
    measured = worker_costs.measure_cpu()
    assert measured.values == [0.5] * 5
    assert measured.detail["ratio_of_prefork"] == 1.5
    assert asked == [(one.name, RABBITMQ) for one in (OURS, PREFORK, BARE)] * 6


def test_the_larger_of_our_two_kinds_of_children_counts(drains):
    measured = worker_costs.measure_memory()
    assert measured.values == [20.0] * 5
    assert measured.detail["mib_above_angzarr_prefork"] == 10.0


@pytest.mark.parametrize("name", [OURS.name, PREFORK.name, BARE.name])
def test_a_side_that_is_not_through_gives_no_figure(drains, name):
    _, unfinished = drains
    unfinished.append(name)
    with pytest.raises(NotMeasured, match=name):
        worker_costs.measure_cpu()


def test_the_added_latency_is_ours_minus_celerys_of_the_run_beside_it(drains, monkeypatch):
    p99 = {PREFORK.name: 9.0, BARE.name: 7.5}
    asked = []

    def latency(peer, broker, rate, events):
        asked.append((broker, rate, events))
        return Latency(p50_ms=1.0, p99_ms=p99[peer.name])

    monkeypatch.setattr(worker_costs, "latency", latency)
    assert worker_costs.measure_latency().values == [1.5] * 5
    assert asked[0] == (RABBITMQ, 200.0, round(200 * worker_costs.SECONDS))


def test_an_overhead_is_the_rate_with_divided_by_the_rate_without(drains):
    asked, _ = drains
    measured = overheads.measure(REDIS, OURS, overheads.NO_FACTS, [overheads.FACTS_IN_SQL])
    assert measured.values == [0.97] * 5
    beside = measured.detail["angzarr_with_facts_in_PostgreSQL"]
    assert beside == {"events_per_second": 1, "cpu_ms_an_event": 1.0, "ratio": 0.01}
    assert asked[:2] == [(OURS.name, REDIS), (overheads.NO_FACTS.name, REDIS)]


def test_a_run_with_telemetry_counts_only_with_a_span_of_each_event(monkeypatch, tmp_path):
    monkeypatch.setattr(overheads, "expect_all", lambda *_given, **_more: None)
    place = {"ANGZARR_STORE": "s", "ANGZARR_PREFIX": "p", "BENCH_FOLDER": str(tmp_path)}
    monkeypatch.setattr("peers.catalogue.expect_all", lambda *_given: None)
    for child in "ab":
        (tmp_path / f"spans-{child}").write_text("{}\n" * 5)
    overheads.TELEMETRY.check("", place, 10)
    with pytest.raises(NotMeasured, match="10 spans of 11 events"):
        overheads.TELEMETRY.check("", place, 11)
