from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from angzarr.adapters.kafka.client import _first, written_at

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
MILLISECONDS = int(NOON.timestamp()) * 1_000


class Record(NamedTuple):
    """The first record of a partition, and what its publisher calls its time."""

    at: int
    number: int
    kind: int = TIMESTAMP_CREATE_TIME

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.at

    def partition(self) -> int:
        return self.number

    def topic(self) -> str:
        return "angzarr-dlq-order"


class Records:
    """A consumer to which those records come, one at each poll."""

    def __init__(self, *records: Record) -> None:
        self._records = list(records)

    def poll(self, _wait: float) -> Record:
        return self._records.pop(0)

    def pause(self, places: Any) -> None:
        assert len(places) == 1


@pytest.mark.parametrize("at", [2**62, -(2**62), MILLISECONDS * 1_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_left_out_and_the_others_count(at):
    assert written_at(TIMESTAMP_CREATE_TIME, at) is None
    assert _first(Records(Record(at, 0), Record(MILLISECONDS, 1)), 2) == NOON  # type: ignore[arg-type]
    assert _first(Records(Record(at, 0)), 1) is None  # type: ignore[arg-type]


def test_the_oldest_is_told_and_a_record_without_a_time_says_nothing():
    older = Record(MILLISECONDS, 0)
    silent = Record(0, 2, TIMESTAMP_NOT_AVAILABLE)
    found = Records(Record(MILLISECONDS + 1, 1), older, silent)
    assert _first(found, 3) == NOON  # type: ignore[arg-type]
