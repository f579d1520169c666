from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.opentelemetry.worker_meters import BreakerMeters
from angzarr.resilience.breaker import Breakers, BreakerSettings

TOUCHY = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))


@pytest.fixture
def made(meters) -> Breakers:
    watch = BreakerMeters(meters)
    breakers = InProcessBreakers(default=TOUCHY, watch=watch)
    watch.observe(breakers)
    return breakers


@pytest.fixture
def read(reader):
    """Return the values of a metric by service."""

    def read(name):
        data = reader.get_metrics_data()
        found = {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        points = found[name].data.data_points if name in found else ()
        return {point.attributes["service"]: point.value for point in points}

    return read


def fail(breakers, name):
    breakers.record(breakers.admit(name, "t"), ok=False, took=timedelta(0))


def test_states_are_told_by_number(made, read):
    made.admit("well", "t")
    fail(made, "ill")
    made.isolate("held", by="ann")
    assert read("circuit_breaker_state") == {"well": 0, "ill": 1, "held": 3}


def test_openings_are_counted_and_nothing_else_is(made, read):
    fail(made, "ill")
    fail(made, "other")
    made.isolate("held", by="ann")
    made.reset("other", by="ann")
    fail(made, "other")
    assert read("circuit_breaker_opens") == {"ill": 1, "other": 2}


def test_breakers_that_nobody_holds_are_not_told_any_more(meters, read):
    watch = BreakerMeters(meters)
    breakers = InProcessBreakers(watch=watch)
    watch.observe(breakers)
    breakers.admit("well", "t")
    assert read("circuit_breaker_state") == {"well": 0}
    del breakers
    assert read("circuit_breaker_state") == {}
