from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.adapters.deliveries import AT, a_delivery, all_outcomes, dead_lettered, retried

from angzarr.adapters.opentelemetry.hook import OpenTelemetryHook
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import Handled
from angzarr.delivery.invoke import Hooks

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
def metrics(reader):
    """Return all metrics that have data, by name."""

    def metrics():
        data = reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    return metrics


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
