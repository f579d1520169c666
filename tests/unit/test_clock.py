from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.hand_clock import START, HandClock

from angzarr.clock import SystemClock, follow, standing_in

HOUR = timedelta(hours=1)


def test_a_clock_that_stands_in_is_what_every_clock_says_until_it_leaves():
    made_before, by_hand = SystemClock(), HandClock()
    began = time.monotonic()
    with standing_in(by_hand):
        assert made_before.now() == SystemClock().now() == START
        made_before.sleep(HOUR)
        asyncio.run(made_before.asleep(HOUR))
        assert SystemClock().now() == START + 2 * HOUR
    assert time.monotonic() - began < HOUR.total_seconds()
    assert abs(made_before.now() - datetime.now(UTC)) < HOUR


def test_the_last_that_stands_in_counts():
    first, second = HandClock(), HandClock()
    second.sleep(HOUR)
    with standing_in(first):
        with standing_in(second):
            assert SystemClock().now() == START + HOUR
        assert SystemClock().now() == START


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_what_a_task_sends_is_dated_by_the_clock_that_its_worker_follows(make_app, zone):
    app, there = make_app(timezone=zone), datetime(2031, 1, 1, tzinfo=UTC)
    follow(there)
    try:
        now = app.now()
        sent = app.amqp.create_task_message("id", "name", countdown=60, expires=120)
    finally:
        follow(None)
    assert now.utcoffset() == there.astimezone(app.timezone).utcoffset()
    eta, expires = (datetime.fromisoformat(sent.headers[name]) for name in ("eta", "expires"))
    minute = timedelta(minutes=1)
    for date, due in ((now, there), (eta, there + minute), (expires, there + 2 * minute)):
        assert due <= date < due + minute
