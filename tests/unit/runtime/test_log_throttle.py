from __future__ import annotations

from angzarr.runtime.log_throttle import A_MINUTE, LogThrottle


class Clock:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_each_cause_is_spoken_of_once_a_minute():
    clock = Clock()
    seldom = LogThrottle(monotonic=clock)
    assert [seldom.now("a"), seldom.now("b"), seldom.now("a")] == [True, True, False]
    clock.now = A_MINUTE - 1
    assert not seldom.now("a")
    clock.now = A_MINUTE
    assert [seldom.now("a"), seldom.now("a")] == [True, False]


def test_causes_of_long_ago_are_forgotten():
    clock = Clock()
    seldom = LogThrottle(monotonic=clock)
    for number in range(1000):
        clock.now += 1
        assert seldom.now(f"tenant-{number}")
    assert len(seldom._next) <= 2 * A_MINUTE
    assert not seldom.now("tenant-999")
