from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.opentelemetry.letter_meters import DepthMeters
from angzarr.dead_letters.depth import QueueDepth
from hand_clock import START

DEPTHS = {
    "order": QueueDepth(3, 9, START - timedelta(minutes=2)),
    "mail": QueueDepth(0, 4),
    "mute": QueueDepth(5, 5),
}


@pytest.fixture
def read(reader):
    """Return the values of a gauge by domain."""

    def read(name):
        data = reader.get_metrics_data()
        found = {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        points = found[name].data.data_points if name in found else ()
        return {point.attributes.get("domain"): point.value for point in points}

    return read


def test_the_queues_are_told_by_domain(meters, read):
    DepthMeters(meters).observe(lambda: DEPTHS, lambda: START, reads=False)
    assert read("dlq_depth") == {"order": 3, "mail": 0, "mute": 5}
    assert read("dlq_messages_total") == {"order": 9, "mail": 4, "mute": 5}


def test_an_age_that_a_queue_does_not_tell_is_missing_and_that_of_nothing_is_0(meters, read):
    DepthMeters(meters).observe(lambda: DEPTHS, lambda: START, reads=False)
    assert read("dlq_oldest_age_seconds") == {"order": 120, "mail": 0}


@pytest.mark.parametrize(("reads", "told"), [(True, {None: 1}), (False, {})])
def test_an_analysis_worker_alone_tells_that_it_runs(meters, read, reads, told):
    DepthMeters(meters).observe(dict, lambda: START, reads=reads)
    assert read("dlq_analysis_worker_up") == told


def test_a_later_worker_of_the_process_is_told_in_place_of_the_one_before(meters, read):
    made = DepthMeters(meters)
    made.observe(lambda: DEPTHS, lambda: START, reads=False)
    made.observe(lambda: {"order": QueueDepth(1, 1)}, lambda: START, reads=False)
    assert read("dlq_depth") == {"order": 1}


def test_a_domain_that_no_exporter_could_write_spoils_no_other(meters, read):
    hostile = {"\ud800": QueueDepth(1, 1), "order": QueueDepth(2, 2)}
    DepthMeters(meters).observe(lambda: hostile, lambda: START, reads=False)
    assert read("dlq_depth") == {"?": 1, "order": 2}
