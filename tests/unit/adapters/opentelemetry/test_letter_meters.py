from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.alerts import alert_of
from tests.hand_clock import START, HandClock

from angzarr.adapters.opentelemetry import letter_meters as letters
from angzarr.adapters.opentelemetry.letter_meters import AlertMeters, DepthMeters, LetterMeters
from angzarr.analysis.alerts.alert_raiser import Depth
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.spool_forwarder import SpoolTally
from angzarr.errors import DeadLetterQueueUnavailable

TALLY = SpoolTally(letters=3, size=700, oldest_at=START, refused=2, damaged=1)


def test_letters_are_counted_by_the_target_that_took_them(meters, read):
    made = LetterMeters(meters)
    made.confirmed("kafka", 2)
    made.confirmed("spool", 1)
    made.confirmed("kafka", 3)
    made.forwarded("kafka", 1)
    assert read("dlq_letters_put", "target") == {"kafka": 5, "spool": 1}
    assert read("dlq_letters_forwarded", "target") == {"kafka": 1}


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


DEPTHS = {
    "order": QueueDepth(3, 9, START - timedelta(minutes=2)),
    "mail": QueueDepth(0, 4),
    "mute": QueueDepth(5, 5),
}


def test_the_queues_are_told_by_domain(meters, read):
    DepthMeters(meters).observe(lambda: DEPTHS, lambda: START, reads=False)
    assert read("dlq_depth", "domain") == {"order": 3, "mail": 0, "mute": 5}
    assert read("dlq_messages_total", "domain") == {"order": 9, "mail": 4, "mute": 5}


def test_an_age_that_a_queue_does_not_tell_is_missing_and_that_of_nothing_is_0(meters, read):
    DepthMeters(meters).observe(lambda: DEPTHS, lambda: START, reads=False)
    assert read("dlq_oldest_age_seconds", "domain") == {"order": 120, "mail": 0}


@pytest.mark.parametrize(("reads", "told"), [(True, {None: 1}), (False, {})])
def test_an_analysis_worker_alone_tells_that_it_runs(meters, read, reads, told):
    DepthMeters(meters).observe(dict, lambda: START, reads=reads)
    assert read("dlq_analysis_worker_up") == told


def test_a_later_worker_of_the_process_is_told_in_place_of_the_one_before(meters, read):
    made = DepthMeters(meters)
    made.observe(lambda: DEPTHS, lambda: START, reads=False)
    made.observe(lambda: {"order": QueueDepth(1, 1)}, lambda: START, reads=False)
    assert read("dlq_depth", "domain") == {"order": 1}


def test_a_domain_that_no_exporter_could_write_spoils_no_other(meters, read):
    hostile = {"\ud800": QueueDepth(1, 1), "order": QueueDepth(2, 2)}
    DepthMeters(meters).observe(lambda: hostile, lambda: START, reads=False)
    assert read("dlq_depth", "domain") == {"?": 1, "order": 2}


def test_alerts_are_counted_by_kind_and_severity_without_their_ends(meters, read):
    made = AlertMeters(meters)
    made.raised(alert_of())
    made.raised(alert_of())
    made.raised(alert_of(resolved=True))
    assert read("dlq_alerts", "kind", "severity") == {("new_group", "error"): 2}


def test_deliveries_are_counted_by_sink_and_outcome(meters, read):
    made = AlertMeters(meters)
    for outcome in ("failed", "failed", "delivered"):
        made.tried("ops", outcome)
    assert read("dlq_alert_deliveries", "sink", "outcome") == {
        ("ops", "failed"): 2,
        ("ops", "delivered"): 1,
    }


def test_the_depth_is_told_as_it_was_last_seen(meters, read):
    clock = HandClock()
    made = AlertMeters(meters, clock)
    assert read("dlq_open_entries", "domain", "class") == {}
    made.show(Depth({("order", "poison"): 2, ("order", ""): 5}, START - timedelta(minutes=1)))
    clock.sleep(timedelta(minutes=1))
    assert read("dlq_open_entries", "domain", "class") == {
        ("order", "poison"): 2,
        ("order", "unclassified"): 5,
    }
    assert read("dlq_oldest_open_age_seconds") == {None: 120}
    made.show(Depth({}, None))
    assert read("dlq_open_entries", "domain", "class") == {}
    assert read("dlq_oldest_open_age_seconds") == {None: 0}
