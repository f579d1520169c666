from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.opentelemetry import letter_meters as letters
from angzarr.adapters.opentelemetry.letter_meters import LetterMeters
from angzarr.dead_letters.forwarding import SpoolTally
from angzarr.errors import DeadLetterQueueUnavailable
from hand_clock import START


@pytest.fixture
def read(reader):
    """Return the values of a metric, by target where it has one."""

    def read(name):
        data = reader.get_metrics_data()
        found = {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        points = found[name].data.data_points if name in found else ()
        return {point.attributes.get("target"): point.value for point in points}

    return read


TALLY = SpoolTally(letters=3, size=700, oldest_at=START, refused=2, damaged=1)


def test_letters_are_counted_by_the_target_that_took_them(meters, read):
    made = LetterMeters(meters)
    made.confirmed("kafka", 2)
    made.confirmed("spool", 1)
    made.confirmed("kafka", 3)
    made.forwarded("kafka", 1)
    assert read("dlq_letters_put") == {"kafka": 5, "spool": 1}
    assert read("dlq_letters_forwarded") == {"kafka": 1}


def test_the_spool_is_told_by_gauges(meters, read):
    LetterMeters(meters).observe(lambda: TALLY, lambda: START + timedelta(minutes=2))
    names = ("letters", "bytes", "oldest_age_seconds", "refused", "damaged")
    assert [read(f"dlq_spool_{name}") for name in names] == [
        {None: 3}, {None: 700}, {None: 120}, {None: 2}, {None: 1}
    ]  # fmt: skip


def test_an_empty_spool_has_no_age(meters, read):
    LetterMeters(meters).observe(lambda: SpoolTally(0, 0, None, 0, 0), lambda: START)
    assert read("dlq_spool_oldest_age_seconds") == {None: 0}


def test_all_gauges_together_count_once(meters, read, monkeypatch):
    monkeypatch.setattr(letters, "_KNOWN_FOR", 60.0)
    counted = []

    def tally():
        counted.append(1)
        return TALLY

    LetterMeters(meters).observe(tally, lambda: START)
    read("dlq_spool_letters")
    assert len(counted) == 1


def test_a_spool_that_cannot_be_read_is_not_told(meters, read):
    def fail():
        raise DeadLetterQueueUnavailable("the disk is away")

    LetterMeters(meters).observe(fail, lambda: START)
    assert read("dlq_spool_letters") == {}


def test_a_later_worker_of_the_process_is_told_instead(meters, read, caplog):
    made = LetterMeters(meters)
    made.observe(lambda: TALLY, lambda: START)
    made.observe(lambda: TALLY._replace(letters=9), lambda: START)
    assert read("dlq_spool_letters") == {None: 9}
    assert caplog.records == []
