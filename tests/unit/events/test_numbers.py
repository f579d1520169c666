"""Every number of a header or property is read by one reader, at once and within bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.events.headers import (
    MAX_NUMBER,
    MAX_SECONDS,
    MAX_SEQUENCE,
    NoNumber,
    number_or,
    read_number,
    read_seconds,
)
from fair_time import fair_seconds

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
