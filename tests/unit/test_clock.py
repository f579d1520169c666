from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from tests.hand_clock import START, HandClock

from angzarr.clock import SystemClock, standing_in

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
