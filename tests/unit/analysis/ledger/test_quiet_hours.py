"""When nothing is replayed by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.analysis.ledger.emergency_stop import (
    BrakeState,
    QuietHours,
    Scope,
    why_not_by_itself,
    window_of,
)
from angzarr.errors import ConfigurationError

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def quiet(*texts, place=UTC):
    zone = place if isinstance(place, ZoneInfo) else ZoneInfo("UTC")
    return QuietHours(windows=tuple(window_of(text) for text in texts), place=zone)


def at(text, zone=UTC):
    return datetime.fromisoformat(text).replace(tzinfo=zone)


@pytest.mark.parametrize(
    ("window", "now", "until"),
    [
        ("22:00-06:00", "2026-11-22T23:00", "2026-11-23T06:00"),
        ("22:00-06:00", "2026-11-22T05:59", "2026-11-22T06:00"),
        ("22:00-06:00", "2026-11-22T06:00", None),
        ("22:00-06:00", "2026-11-22T21:59", None),
        ("Sat,Sun 00:00-24:00", "2026-11-21T12:00", "2026-11-23T00:00"),
        ("Fri-Sun 18:00 - 08:00", "2026-11-23T07:00", "2026-11-23T08:00"),
        ("Fri-Sun 18:00-08:00", "2026-11-24T07:00", None),
        ("mon 09:00-17:00", "2026-11-23T10:00", "2026-11-23T17:00"),
    ],
)
def test_a_window_says_until_when_it_is_quiet(window, now, until):
    assert quiet(window).until(at(now)) == (until and at(until))


def test_windows_that_touch_are_one_wait():
    hours = quiet("22:00-24:00", "00:00-06:00", "05:00-07:30")
    assert hours.until(at("2026-11-22T22:30")) == at("2026-11-23T07:30")


def test_quiet_for_ever_is_bounded():
    assert quiet("00:00-24:00").until(at("2026-11-22T12:00")) is not None


@pytest.mark.parametrize("now", ["2026-10-24T22:30", "2026-10-25T00:30", "2026-10-25T01:30"])
def test_the_night_of_the_repeated_hour_ends_when_its_clocks_say_so(now):
    hours = quiet("22:00-06:00", place=BERLIN)
    assert hours.until(at(now)) == at("2026-10-25T05:00"), "06:00 in winter time"


@given(
    st.integers(0, 366 * 24 * 60).map(lambda minutes: NEW_YEAR + timedelta(minutes=minutes)),
    st.sampled_from(["22:00-06:00", "Sun 01:00-03:30", "Mon-Fri 08:00-18:00", "02:00-03:00"]),
)
def test_it_is_not_quiet_any_more_when_it_says_so(now, window):
    hours = quiet(window, place=BERLIN)
    end = hours.until(now)
    if end is not None:
        assert now < end <= now + timedelta(days=8)
        assert hours.until(end) is None


@pytest.mark.parametrize(
    "text",
    ["", "22-06", "25:00-06:00", "22:00-06:60", "Foo 22:00-06:00", "Mon-Tue-Wed 01:00-02:00"],
)
def test_what_cannot_be_read_is_refused_with_the_form_it_wants(text):
    with pytest.raises(ConfigurationError, match="write 22:00-06:00"):
        window_of(text)


def test_nothing_begins_by_itself_while_the_brake_holds_or_it_is_quiet():
    now = at("2026-11-22T23:00")
    assert why_not_by_itself(BrakeState(), quiet(), now) == ""
    assert "06:00 UTC" in why_not_by_itself(BrakeState(), quiet("22:00-06:00"), now)
    pulled = BrakeState(scope=Scope.AUTOMATIC, by="ann\x1b[31m", why="the CRM is ill")
    said = why_not_by_itself(pulled, quiet(), now)
    assert "the CRM is ill" in said
    assert "\x1b" not in said
