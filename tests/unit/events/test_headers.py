"""Headers: an event survives the wire, and no header can stop a worker."""

from __future__ import annotations

import json
import re
import string
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.delivery import read
from angzarr.errors import DecodeError
from angzarr.events import headers as names
from angzarr.events.event import Event, Message, Priority
from angzarr.events.headers import (
    MAX_NUMBER,
    MAX_SECONDS,
    MAX_SEQUENCE,
    NoNumber,
    check_sequence,
    from_headers,
    number_or,
    read_number,
    read_seconds,
    time_of,
    to_headers,
)
from fair_time import fair_seconds

TEXT = st.text(min_size=1)
OPTIONAL = st.none() | TEXT
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
EVENTS = st.builds(
    Event,
    id=TEXT, type=TEXT, data=st.none(), domain=OPTIONAL, root=OPTIONAL, edition=OPTIONAL,
    sequence=st.none() | st.integers(0, MAX_SEQUENCE),
    correlation_id=OPTIONAL, causation_id=OPTIONAL, tenant_id=OPTIONAL,
    priority=st.sampled_from(Priority), config_pins=st.dictionaries(st.text(), st.text()),
    occurred_at=st.none() | st.datetimes(
        datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=ZONES  # noqa: DTZ001 - bounds are naive
    ),
    traceparent=OPTIONAL,
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.text(string.digits, max_size=30),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip
#: What AMQP tables may hold besides JSON.
ODD = JSON | st.binary() | st.decimals() | st.datetimes()
ALL_NAMES = [
    value
    for name, value in vars(names).items()
    if name.isupper() and name[0] != "_" and isinstance(value, str)
]  # fmt: skip


@given(EVENTS)
def test_an_event_survives_its_headers_and_json(event):
    headers = json.loads(json.dumps(to_headers(event)))
    assert from_headers(headers, data=None, event_id="other", type="other") == event


def test_absent_fields_make_no_headers():
    assert to_headers(Event(id="e", type="t", data=1)) == {
        names.EVENT_ID: "e",
        names.EVENT_TYPE: "t",
    }


def test_a_foreign_message_takes_the_ids_that_stand_in():
    event = from_headers({}, data=1, event_id="task-id", type="mod.task")
    assert (event.id, event.type, event.data) == ("task-id", "mod.task", 1)


@given(st.dictionaries(st.sampled_from([*ALL_NAMES, "id", "task", "retries"]), ODD))
def test_no_header_of_any_type_stops_a_worker(headers):
    message = Message(
        body=b"", content_type="", content_encoding="", headers=headers, queue="q"
    )  # fmt: skip
    delivery = read(message, args=(), kwargs={}, token="t", owner="o")
    assert delivery.attempt >= 1
    assert delivery.position >= (0, 0)
    assert isinstance(delivery.event.priority, Priority)
    assert isinstance(delivery.event.id, str)


@pytest.mark.parametrize(
    "pins",
    ["[" * 100_000, '{"a":' * 100_000, "[1]", "nul", 5, ["x"], '{"a": [' + "[]," * 10_000 + "[]]}"],
)
def test_pins_that_are_no_object_are_no_pins(pins):
    assert not from_headers({names.CONFIG_PINS: pins}, data=1, event_id="e", type="t").config_pins


@pytest.mark.parametrize("sequence", [None, 0, 2**31, MAX_SEQUENCE])
def test_a_sequence_that_can_be_read_passes(sequence):
    check_sequence({names.SEQUENCE: sequence})


@pytest.mark.parametrize(
    "sequence", [MAX_SEQUENCE + 1, 10**5000, -1, True, "high", 0.5, {}], ids=type
)
def test_a_sequence_that_cannot_be_read_is_said_to_whoever_goes_by_it(sequence):
    with pytest.raises(DecodeError, match="sequence must be a whole number from 0 to 4294967295"):
        check_sequence({names.SEQUENCE: sequence})


def test_a_time_without_a_zone_is_utc():
    assert time_of("2026-01-02T03:04:05") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00+14:00", 5, None, b"2026-01-01"])
def test_a_time_that_is_none_counts_as_absent(text):
    assert time_of(text) is None


def test_every_header_is_documented():
    """Wire names never change, so each stands in the reference."""
    page = Path(__file__).parents[3] / "docs" / "reference" / "headers.md"
    listed = set(re.findall(r"`([A-Za-z-]+)`", page.read_text(encoding="utf-8")))
    assert set(ALL_NAMES) <= listed


@given(st.text(min_size=1), ODD)
def test_what_takes_a_tasks_id_over_is_another_event(task_id, nesting):
    """Both readers of an id say the same of whatever a message brings."""
    headers = {"id": task_id, "replaced_task_nesting": nesting}
    told = names.event_id_of(headers)
    assert told == names.from_headers(headers, data=None, event_id=task_id, type="t").id
    assert told.startswith(task_id)


def test_each_replacement_and_no_copy_of_one_is_an_event_of_its_own():
    def told(nesting, **more):
        return names.event_id_of({"id": "t", "replaced_task_nesting": nesting, **more})

    assert [told(None), told(0), told(1), told(2)] == ["t", "t", "t~1", "t~2"]
    assert told(1, **{names.HOP: 3, names.REPLAY: 2}) == "t~1"
    assert told(1, **{names.EVENT_ID: "e"}) == "e"


def test_a_skip_is_told_by_a_reason_that_a_log_may_show():
    assert names.skip_of({}) is None
    assert names.skip_of({names.SKIP: "a test\x1b[2J\n"}) == "a test\ufffd[2J\ufffd"
    assert names.skip_of({names.SKIP: "x" * 10_000}) == "x" * names.LONGEST_REASON


@given(ODD)
def test_what_is_no_reason_skips_nothing(value):
    reason = names.skip_of({names.SKIP: value})
    assert (reason is None) == (not isinstance(value, str) or not value)


#: What JSON, kombu's typed JSON and AMQP tables can hold, the dearest of each kind among them.
ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.decimals(),
    st.datetimes(), st.uuids(), st.lists(st.integers()), st.dictionaries(st.text(), st.integers()),
    st.sampled_from(
        [10**400, -(10**400), 10**5000, "9" * 4301, "9" * 10**6, "1e1000000", "\u0661", " 5 ",
         "1_000", "0x10", Decimal("1e1000000"), Decimal("-1e1000000"), Decimal("sNaN"), 1e308]
    ),
)  # fmt: skip


@given(ANYTHING, st.sampled_from([MAX_NUMBER, MAX_SEQUENCE]))
def test_whatever_it_is_the_answer_is_a_number_within_bounds_or_why_not(value, most):
    number = read_number(value, most)
    assert isinstance(number, NoNumber) or (type(number) is int and 0 <= number <= most)
    assert (number is NoNumber.ABSENT) == (value is None)
    assert number_or(value, 7, most) == (7 if isinstance(number, NoNumber) else number)


@given(ANYTHING)
def test_whatever_they_are_seconds_are_finite_and_within_bounds(value):
    seconds = read_seconds(value)
    assert isinstance(seconds, NoNumber) or 0 <= seconds <= MAX_SECONDS
    assert (seconds is NoNumber.ABSENT) == (value is None)


@pytest.mark.parametrize(
    ("value", "told"),
    [(5, 5), (5.0, 5), ("5", 5), ("0000000005", 5), (2**30, 2**30), (None, NoNumber.ABSENT),
     (2**30 + 1, NoNumber.TOO_LARGE), (1e300, NoNumber.TOO_LARGE), ("9" * 11, NoNumber.TOO_LARGE),
     (10**400, NoNumber.TOO_LARGE), (-1, NoNumber.MALFORMED), (True, NoNumber.MALFORMED),
     (0.5, NoNumber.MALFORMED), (float("nan"), NoNumber.MALFORMED), ("", NoNumber.MALFORMED),
     (float("inf"), NoNumber.MALFORMED), ("-1", NoNumber.MALFORMED), (b"5", NoNumber.MALFORMED),
     (Decimal(5), NoNumber.MALFORMED), (datetime(2026, 1, 1, tzinfo=UTC), NoNumber.MALFORMED)],
)  # fmt: skip
def test_absent_malformed_and_too_large_are_three_answers(value, told):
    assert read_number(value) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, NoNumber.ABSENT), (0, 0), (1.5, 1.5), ("5", NoNumber.MALFORMED),
     (True, NoNumber.MALFORMED), (float("nan"), NoNumber.MALFORMED), (-1, NoNumber.MALFORMED),
     (10**400, NoNumber.TOO_LARGE), (float("inf"), NoNumber.TOO_LARGE)],
)  # fmt: skip
def test_seconds_have_the_same_three_answers(value, told):
    assert read_seconds(value) == told


@pytest.mark.parametrize("value", [Decimal("1e1000000"), "9" * 10**6, 10**5000], ids=type)
def test_no_number_is_dear_to_read(value):
    """One of these took 73 seconds; a millisecond is a thousand times what it takes now."""

    def read_often():
        for _ in range(100):
            read_number(value)
            read_seconds(value)

    assert fair_seconds(read_often, enough=1.0) <= 1.0


def test_a_number_can_be_counted_on_from_and_still_fits_a_store():
    assert MAX_NUMBER + 10**6 < 2**31
