from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.opentelemetry.worker_meters import OrderingMeters
from angzarr.ordering.lane_view import OrderingSample

GAUGES = ("events_behind", "parked_events", "blocked_lanes", "gaps")


@pytest.fixture
def made(meters) -> OrderingMeters:
    return OrderingMeters(meters)


@pytest.fixture
def points(reader):
    """Return the points of a metric by handler."""

    def read(name):
        data = reader.get_metrics_data()
        return {
            point.attributes["projection"]: point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    return read


def test_how_late_events_are_handled_is_measured_by_handler(made, points):
    made.handled("projection.sales", timedelta(seconds=3))
    made.handled("projection.sales", timedelta(minutes=2))
    made.handled("shop.ship", timedelta(milliseconds=40))
    found = points("projection_lag_seconds")
    assert {name: (one.count, one.sum) for name, one in found.items()} == {
        "projection.sales": (2, 123.0),
        "shop.ship": (1, 0.04),
    }


def test_an_event_that_a_faster_clock_dated_is_not_negative(made, points):
    made.handled("shop.ship", timedelta(seconds=-5))
    assert points("projection_lag_seconds")["shop.ship"].sum == 0


def test_what_waits_is_shown_as_it_was_last_seen(made, points):
    assert [points(f"projection_{name}") for name in GAUGES] == [{}] * 4
    made.show([OrderingSample(handler="a", parked=9, blocked=9, gaps=9, events_behind=9)])
    made.show(
        [
            OrderingSample(handler="a", parked=5, blocked=2, gaps=1, events_behind=7),
            OrderingSample(handler="b", parked=0, blocked=0, gaps=0, events_behind=0),
        ]
    )
    shown = {name: points(f"projection_{name}") for name in GAUGES}
    assert {name: {who: one.value for who, one in of.items()} for name, of in shown.items()} == {
        "events_behind": {"a": 7, "b": 0},
        "parked_events": {"a": 5, "b": 0},
        "blocked_lanes": {"a": 2, "b": 0},
        "gaps": {"a": 1, "b": 0},
    }


def test_what_nobody_counted_is_not_shown_as_none(made, points):
    made.show([OrderingSample(handler="a", parked=1, blocked=0, gaps=0)])
    assert points("projection_events_behind") == {}
    assert points("projection_parked_events")["a"].value == 1
