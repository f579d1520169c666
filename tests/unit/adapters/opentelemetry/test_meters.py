from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.adapters.deliveries import AT, a_delivery, all_outcomes, dead_lettered, retried

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.opentelemetry.fact_meters import FactMeters
from angzarr.adapters.opentelemetry.meters import (
    BreakerMeters,
    ClockMeters,
    LoopMeters,
    OrderingMeters,
)
from angzarr.adapters.opentelemetry.traces import OpenTelemetryHook
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import Handled
from angzarr.delivery.invoke import Hooks
from angzarr.facts.relay import RelayCounts
from angzarr.ordering.lane_view import OrderingSample
from angzarr.resilience.breaker import Breakers, BreakerSettings

FAILED_ONCE = {
    ("errors",): 1,
    ("errors_by_type", "external"): 1,
    ("errors_by_tool", "shop.sync"): 1,
}
LABELS = {
    "errors_by_type": {"type"},
    "errors_by_tool": {"tool_id"},
    "event_handler_failure": {"error_type"},
    "event_handler_duration_ms": {"event_type", "handler"},
}


class FixedClock:
    def now(self):
        return AT

    def sleep(self, span):
        raise AssertionError


@pytest.fixture
def counts(hook, metrics):
    """Settle deliveries; return the counters as {(name, label values…): value}."""

    def counts(*outcomes, **headers):
        for outcome in outcomes:
            hook.settled(a_delivery(**headers), outcome)
        return {
            (metric.name, *point.attributes.values()): point.value
            for metric in metrics().values()
            for point in metric.data.data_points
            if hasattr(point, "value") and point.value
        }

    return counts


def test_a_handled_event_is_a_success(counts):
    assert counts(Handled(), Handled()) == {("event_handler_success",): 2}


def test_a_success_after_a_retry_is_counted_as_such(counts):
    assert counts(Handled(), angzarr_attempt=2) == {
        ("event_handler_success",): 1,
        ("retries_successful",): 1,
    }


def test_a_retry_is_an_error_a_failed_run_and_a_retry(counts):
    assert counts(retried()) == {
        **FAILED_ONCE,
        ("event_handler_failure", "external"): 1,
        ("retries",): 1,
        ("event_handler_retry",): 1,
    }


@pytest.mark.parametrize(
    "reason", [Reason.EXHAUSTED, Reason.OUT_OF_TIME, Reason.REFUSED, Reason.POISON]
)
def test_a_dead_letter_is_an_error_and_a_failed_run(counts, reason):
    assert counts(dead_lettered(reason)) == {
        **FAILED_ONCE,
        ("event_handler_failure", "external"): 1,
        ("event_handler_dlq",): 1,
        ("retries_exhausted",): 1,
    }


@pytest.mark.parametrize("reason", [Reason.UNDELIVERABLE, Reason.CONFLICT, Reason.TOO_OLD])
def test_a_dead_letter_that_never_ran_is_no_failure_of_its_handler(counts, reason):
    letter = dead_lettered(reason, attempts=1)
    assert counts(letter) == {**FAILED_ONCE, ("event_handler_dlq",): 1}


def test_duplicates_skips_and_postponements_count_as_nothing(counts):
    silent = [
        one
        for one in all_outcomes()
        if type(one).__name__ not in {"Handled", "Retried", "DeadLettered"}
    ]
    assert len(silent) == 6
    assert counts(*silent) == {}


def test_a_run_is_timed_by_event_type_and_handler(hook, metrics):
    with hook.attempt(a_delivery()):
        pass
    (point,) = metrics()["event_handler_duration_ms"].data.data_points
    assert dict(point.attributes) == {"event_type": "order.placed", "handler": "shop.sync"}
    assert point.count == 1
    assert 0 <= point.sum < 1000


def test_the_end_of_a_retried_event_tells_how_many_runs_and_how_long(meters, metrics):
    hook = OpenTelemetryHook(meter_provider=meters, clock=FixedClock())
    first = (AT - timedelta(seconds=90)).isoformat()
    headers = {"angzarr_attempt": 3, "angzarr_first_attempt_at": first}
    hook.settled(a_delivery(**headers), Handled())
    hook.settled(a_delivery(**headers), dead_lettered(attempts=3))
    (runs,) = metrics()["retry_attempts"].data.data_points
    (span,) = metrics()["retry_duration_seconds"].data.data_points
    assert (runs.count, runs.sum) == (2, 6)
    assert (span.count, span.sum) == (2, 180)


def test_counts_without_labels_begin_at_0(hook, metrics):
    begun = {name: metric.data.data_points[0].value for name, metric in metrics().items()}
    assert begun == dict.fromkeys(begun, 0)
    assert begun.keys() == {
        "errors", "retries", "retries_successful", "retries_exhausted",
        "event_handler_success", "event_handler_retry", "event_handler_dlq",
    }  # fmt: skip


def test_only_a_letter_after_a_retry_says_that_retries_did_not_help(counts):
    assert ("retries_exhausted",) not in counts(dead_lettered(attempts=1), Handled())
    assert counts(dead_lettered(attempts=2), dead_lettered(attempts=3))["retries_exhausted",] == 2


def test_a_label_that_comes_with_a_message_is_cut(hook, metrics):
    hostile = a_delivery(task="t" * 5000, angzarr_event_type="e" * 5000)
    with hook.attempt(hostile):
        pass
    hook.settled(hostile, retried())
    (timed,) = metrics()["event_handler_duration_ms"].data.data_points
    (counted,) = metrics()["errors_by_tool"].data.data_points
    assert timed.attributes["event_type"] == "e" * 200
    assert counted.attributes["tool_id"] == "t" * 200


def test_an_event_that_was_never_retried_has_no_retry_figures(hook, metrics):
    hook.settled(a_delivery(), Handled())
    hook.settled(a_delivery(), dead_lettered(attempts=1))
    assert not {"retry_attempts", "retry_duration_seconds"} & metrics().keys()


def test_prometheus_exporters_neither_double_a_suffix_nor_add_a_unit(hook, metrics):
    first = (AT - timedelta(seconds=90)).isoformat()
    for outcome in (Handled(), retried(), dead_lettered()):
        delivery = a_delivery(angzarr_attempt=2, angzarr_first_attempt_at=first)
        with hook.attempt(delivery):
            pass
        hook.settled(delivery, outcome)
    found = metrics()
    assert found.keys() == {
        "errors", "errors_by_type", "errors_by_tool", "retries", "retries_successful",
        "retries_exhausted", "event_handler_success", "event_handler_failure",
        "event_handler_retry", "event_handler_dlq", "event_handler_duration_ms", "retry_attempts",
        "retry_duration_seconds",
    }  # fmt: skip
    for name, metric in found.items():
        assert metric.unit == ""
        labels = {frozenset(point.attributes) for point in metric.data.data_points}
        assert labels == {frozenset(LABELS.get(name, ()))}


def test_a_broken_meter_fails_no_delivery(caplog):
    class Broken:
        def get_meter(self, *_, **__):
            return self

        def __getattr__(self, _):
            return lambda *_, **__: Instrument()

    class Instrument:
        def add(self, *_):
            raise RuntimeError("broken")

        record = add

    hooks = Hooks([OpenTelemetryHook(meter_provider=Broken())])
    delivery = a_delivery()
    with hooks.attempt(delivery):
        pass
    hooks.settled(delivery, Handled())
    assert [record.message for record in caplog.records] == ["hook_failed"] * 2


TOUCHY = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))


@pytest.fixture
def made(meters) -> Breakers:
    watch = BreakerMeters(meters)
    breakers = InProcessBreakers(default=TOUCHY, watch=watch)
    watch.observe(breakers)
    return breakers


def fail(breakers, name):
    breakers.record(breakers.admit(name, "t"), ok=False, took=timedelta(0))


def test_states_are_told_by_number(made, read):
    made.admit("well", "t")
    fail(made, "ill")
    made.isolate("held", by="ann")
    assert read("circuit_breaker_state", "service") == {"well": 0, "ill": 1, "held": 3}


def test_openings_are_counted_and_nothing_else_is(made, read):
    fail(made, "ill")
    fail(made, "other")
    made.isolate("held", by="ann")
    made.reset("other", by="ann")
    fail(made, "other")
    assert read("circuit_breaker_opens", "service") == {"ill": 1, "other": 2}


def test_breakers_that_nobody_holds_are_not_told_any_more(meters, read):
    watch = BreakerMeters(meters)
    breakers = InProcessBreakers(watch=watch)
    watch.observe(breakers)
    breakers.admit("well", "t")
    assert read("circuit_breaker_state", "service") == {"well": 0}
    del breakers
    assert read("circuit_breaker_state", "service") == {}


def test_what_a_relay_of_facts_does_is_counted_by_the_worker_that_has_the_duty(meters, read):
    counts = RelayCounts()
    FactMeters(meters).observe(counts)
    assert read("facts_waiting") == {}
    counts.moved, counts.refused, counts.dropped, counts.depth = 7, 2, 3, 40
    told = {name: read(f"facts_{name}") for name in ("waiting", "moved", "refused", "dropped")}
    assert told == {
        "waiting": {None: 40}, "moved": {None: 7}, "refused": {None: 2}, "dropped": {None: 3},
    }  # fmt: skip


def test_how_wrong_a_clock_is_is_told_once_it_is_known(meters, read):
    ahead = [None]
    ClockMeters(meters).observe(lambda: ahead[0])
    assert read("clock_ahead_seconds") == {}
    ahead[0] = timedelta(minutes=-10)
    assert read("clock_ahead_seconds") == {None: -600}


GAUGES = ("events_behind", "parked_events", "blocked_lanes", "gaps")


@pytest.fixture
def ordering(meters) -> OrderingMeters:
    return OrderingMeters(meters)


def test_how_late_events_are_handled_is_measured_by_handler(ordering, points):
    ordering.handled("projection.sales", timedelta(seconds=3))
    ordering.handled("projection.sales", timedelta(minutes=2))
    ordering.handled("shop.ship", timedelta(milliseconds=40))
    found = points("projection_lag_seconds", "projection")
    assert {name: (one.count, one.sum) for name, one in found.items()} == {
        "projection.sales": (2, 123.0),
        "shop.ship": (1, 0.04),
    }


def test_an_event_that_a_faster_clock_dated_is_not_negative(ordering, points):
    ordering.handled("shop.ship", timedelta(seconds=-5))
    assert points("projection_lag_seconds", "projection")["shop.ship"].sum == 0


def test_what_waits_is_shown_as_it_was_last_seen(ordering, points):
    assert [points(f"projection_{name}", "projection") for name in GAUGES] == [{}] * 4
    ordering.show([OrderingSample(handler="a", parked=9, blocked=9, gaps=9, events_behind=9)])
    ordering.show(
        [
            OrderingSample(handler="a", parked=5, blocked=2, gaps=1, events_behind=7),
            OrderingSample(handler="b", parked=0, blocked=0, gaps=0, events_behind=0),
        ]
    )
    shown = {name: points(f"projection_{name}", "projection") for name in GAUGES}
    assert {name: {who: one.value for who, one in of.items()} for name, of in shown.items()} == {
        "events_behind": {"a": 7, "b": 0},
        "parked_events": {"a": 5, "b": 0},
        "blocked_lanes": {"a": 2, "b": 0},
        "gaps": {"a": 1, "b": 0},
    }


def test_what_nobody_counted_is_not_shown_as_none(ordering, points):
    ordering.show([OrderingSample(handler="a", parked=1, blocked=0, gaps=0)])
    assert points("projection_events_behind", "projection") == {}
    assert points("projection_parked_events", "projection")["a"].value == 1


class Loop:
    times, seconds = 0, 0.0

    def longest(self) -> float:
        return self.seconds


def test_how_often_and_how_long_an_event_loop_was_blocked_is_shown(meters, read):
    loop = Loop()
    LoopMeters(meters).observe(loop)
    assert (read("loop_blocked"), read("loop_blocked_longest_seconds")) == ({None: 0}, {None: 0.0})
    loop.times, loop.seconds = 2, 3.5
    assert (read("loop_blocked"), read("loop_blocked_longest_seconds")) == ({None: 2}, {None: 3.5})
