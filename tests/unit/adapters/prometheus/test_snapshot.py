"""What processes measure is added up, and told as Prometheus reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry.metrics import Observation
from prometheus_client.parser import text_string_to_metric_families

from angzarr.adapters.opentelemetry.letter_meters import AlertMeters, LetterMeters
from angzarr.adapters.opentelemetry.meters import BreakerMeters, Meters, OrderingMeters, SagaMeters
from angzarr.adapters.prometheus.folder import ProcessMeter
from angzarr.adapters.prometheus.snapshot import COUNTER, MOST, MetricsSnapshot, Series, text_of

DOCS = Path(__file__).resolve().parents[4] / "docs"


class Process:
    """One that measures a little of each kind."""

    def __init__(self, *, count: int = 0, level: int = 0, gauge: float = 0.0) -> None:
        self.measuring = ProcessMeter()
        meter = self.measuring.provider.get_meter("angzarr")
        counter = meter.create_counter("dlq_letters_put", description="Letters")
        counter.add(count, {"target": "kafka"})
        meter.create_up_down_counter("level").add(level)
        meter.create_observable_gauge("age", callbacks=[lambda _: [Observation(gauge)]])
        took = meter.create_histogram("took_ms", explicit_bucket_boundaries_advisory=[1, 10])
        for _ in range(count):
            took.record(5)

    def snapshot(self) -> MetricsSnapshot:
        return self.measuring.snapshot()


def told(snapshot: MetricsSnapshot) -> dict[str, float]:
    """Return the samples that Prometheus's own reader finds."""
    return {
        sample.name + "".join(f"{{{k}={v}}}" for k, v in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text_of(snapshot).decode())
        for sample in family.samples
    }


def test_counters_and_histograms_are_added_and_the_greatest_gauge_counts():
    total = MetricsSnapshot()
    for process in (Process(count=2, level=1, gauge=3.5), Process(count=5, level=2, gauge=1.5)):
        total.add(process.snapshot())
    assert told(total) == {
        "dlq_letters_put_total{target=kafka}": 7,
        "level": 3,
        "age": 3.5,
        "took_ms_bucket{le=1.0}": 0,
        "took_ms_bucket{le=10.0}": 7,
        "took_ms_bucket{le=+Inf}": 7,
        "took_ms_count": 7,
        "took_ms_sum": 35,
    }


def test_of_a_process_that_ended_only_what_lasts_is_kept():
    total = MetricsSnapshot()
    total.add(Process(count=2, level=1, gauge=3.5).snapshot(), ended=True)
    assert {name.partition("{")[0] for name in told(total)} == {
        "dlq_letters_put_total", "took_ms_bucket", "took_ms_count", "took_ms_sum"
    }  # fmt: skip


def test_adding_changes_nobody_elses_numbers():
    one, total = Process(count=1).snapshot(), MetricsSnapshot()
    for _ in range(2):
        total.add(one)
    assert told(one)["dlq_letters_put_total{target=kafka}"] == 1


def test_a_snapshot_outlives_its_way_through_a_file():
    taken = Process(count=3, level=1, gauge=2).snapshot()
    assert MetricsSnapshot.from_json(taken.to_json()) == taken


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b'{"a": 1}', b'{"a": [1]}', b"\xff", b'{"a": ["counter", "", [], [[1, 2]]]}'],
)
def test_garbage_in_a_file_is_a_value_error(raw):
    with pytest.raises(ValueError):
        MetricsSnapshot.from_json(raw)


def test_histograms_of_other_buckets_are_left_out():
    one = Series("histogram", "", (1.0,), {(): [1.0, 0.0, 1.0]})
    one.add(Series("histogram", "", (2.0,), {(): [5.0, 0.0, 1.0]}))
    assert one.points == {(): [1.0, 0.0, 1.0]}


def test_hostile_labels_of_many_children_are_one_series_in_the_end():
    total = MetricsSnapshot()
    for child in range(3):
        points = {(("type", f"{child}-{n}"),): [1.0] for n in range(MOST - 1)}
        total.add(MetricsSnapshot({"errors": Series(COUNTER, "", points=points)}), ended=True)
    kept = total.series["errors"].points
    assert len(kept) == MOST + 1
    assert sum(value for (value,) in kept.values()) == 3 * (MOST - 1), "none is lost"
    assert told(total)["errors_total{otel_metric_overflow=true}"] == 2 * MOST - 3


def test_what_a_label_says_cannot_break_the_text():
    process = Process()
    meter = process.measuring.provider.get_meter("angzarr")
    hostile = 'a"b\nevent_handler_success_total 999\\'
    meter.create_counter("odd").add(1, {"type": hostile, "odd-name": "x"})
    found = [key for key in told(process.snapshot()) if key.startswith("odd_total")]
    assert found == [f"odd_total{{odd_name=x}}{{type={hostile}}}"]


def test_every_metric_has_the_name_on_its_page():
    measuring = ProcessMeter()
    provider = measuring.provider
    Meters(provider.get_meter("angzarr"))
    for make in (LetterMeters, AlertMeters, BreakerMeters, OrderingMeters, SagaMeters):
        make(provider)
    known = {
        instrument.name
        for meter in provider._meters.values()
        for instrument in meter._instrument_id_instrument.values()
    }
    page = (DOCS / "reference" / "metrics.md").read_text()
    said = set(re.findall(r"`([a-z_]+)`", page))
    assert len(known) > 20
    assert {name for name in known if not {name, f"{name}_total"} & said} == set()
