from __future__ import annotations

import pytest

from angzarr.adapters.celery.worker.consumer_state import (
    CONNECTED_FOR,
    LONGEST_RECONNECT,
    ReconnectPauses,
)


class Stopped(Exception):
    pass


class Hand:
    """A clock that sleeping turns on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hand() -> Hand:
    return Hand()


def waited(hand: Hand, restarts: ReconnectPauses) -> float:
    before = hand.now
    restarts.step()
    return round(hand.now - before, 6)


def test_a_connection_lost_at_once_again_and_again_is_tried_more_and_more_seldom(hand):
    restarts = ReconnectPauses(clock=hand, sleep=hand.sleep, chance=lambda: 1.0, look=lambda: None)
    waits = [waited(hand, restarts) for _ in range(8)]
    assert waits == [0, 0.5, 1, 2, 4, 8, LONGEST_RECONNECT, LONGEST_RECONNECT]


def test_a_connection_that_lasted_is_tried_again_at_once(hand):
    restarts = ReconnectPauses(clock=hand, sleep=hand.sleep, chance=lambda: 1.0, look=lambda: None)
    for _ in range(5):
        restarts.step()
    hand.now += CONNECTED_FOR
    assert waited(hand, restarts) == 0
    assert waited(hand, restarts) == 0.5


def test_half_of_a_wait_is_by_chance(hand):
    restarts = ReconnectPauses(clock=hand, sleep=hand.sleep, chance=lambda: 0.0, look=lambda: None)
    assert [waited(hand, restarts) for _ in range(3)] == [0, 0.25, 0.5]


def test_who_waits_hears_that_the_worker_stops(hand):
    def look() -> None:
        if hand.now > 100.2:
            raise Stopped

    restarts = ReconnectPauses(clock=hand, sleep=hand.sleep, chance=lambda: 1.0, look=look)
    restarts.step()
    with pytest.raises(Stopped):
        restarts.step()
    assert hand.now < 100.5
