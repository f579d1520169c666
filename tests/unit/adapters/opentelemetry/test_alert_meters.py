from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.alerts import alert_of
from tests.hand_clock import START, HandClock

from angzarr.adapters.opentelemetry.letter_meters import AlertMeters
from angzarr.analysis.alerts.alert_raiser import Depth


@pytest.fixture
def read(reader):
    """Return the values of a metric, by the values of its labels."""

    def read(name):
        data = reader.get_metrics_data()
        found = {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        points = found[name].data.data_points if name in found else ()
        return {tuple(sorted(point.attributes.items())): point.value for point in points}

    return read


def test_alerts_are_counted_by_kind_and_severity_without_their_ends(meters, read):
    made = AlertMeters(meters)
    made.raised(alert_of())
    made.raised(alert_of())
    made.raised(alert_of(resolved=True))
    assert read("dlq_alerts") == {(("kind", "new_group"), ("severity", "error")): 2}


def test_deliveries_are_counted_by_sink_and_outcome(meters, read):
    made = AlertMeters(meters)
    for outcome in ("failed", "failed", "delivered"):
        made.tried("ops", outcome)
    assert read("dlq_alert_deliveries") == {
        (("outcome", "failed"), ("sink", "ops")): 2,
        (("outcome", "delivered"), ("sink", "ops")): 1,
    }


def test_the_depth_is_told_as_it_was_last_seen(meters, read):
    clock = HandClock()
    made = AlertMeters(meters, clock)
    assert read("dlq_open_entries") == {}
    made.show(Depth({("order", "poison"): 2, ("order", ""): 5}, START - timedelta(minutes=1)))
    clock.sleep(timedelta(minutes=1))
    assert read("dlq_open_entries") == {
        (("class", "poison"), ("domain", "order")): 2,
        (("class", "unclassified"), ("domain", "order")): 5,
    }
    assert read("dlq_oldest_open_age_seconds") == {(): 120}
    made.show(Depth({}, None))
    assert read("dlq_open_entries") == {}
    assert read("dlq_oldest_open_age_seconds") == {(): 0}
