"""What is read off a stream of events that went through an outage."""

from __future__ import annotations

import pytest
from harness.course import Course, per_second

RATE = 10


def course(*, delay=lambda _at: 0.01, calls=(), given_up=(), seconds=60, began=10.0, ended=20.0):
    """Ten events a second; each ends *delay* of its publication later."""
    published = {number: number / RATE for number in range(seconds * RATE)}
    ends = {number: at + delay(at) for number, at in published.items()}
    return Course(
        began=began, ended=ended, calls=calls, published=published,
        handled={number: at for number, at in ends.items() if number not in given_up},
        given_up={number: ends[number] for number in given_up},
    )  # fmt: skip


def until(moment):
    """Hold back what is published from second 10 to 20, and end it all at *moment*."""
    return lambda at: moment - at if 10 <= at < 20 else 0.01


def test_only_calls_within_the_outage_count():
    assert course(calls=[9.99, 10.0, 15.0, 19.99, 20.0]).calls_while_sick() == 3


def test_calls_are_counted_by_the_second_from_before_the_outage():
    told = course(calls=[7.9, 8.0, 8.5, 10.0, 11.99, 12.0]).calls_per_second(before=2, after=2)
    assert told == [2, 0, 1, 1]


def test_what_came_before_the_first_second_is_no_part_of_it():
    assert per_second([-0.5, 0.5], 0.0, 1) == [1]


def test_a_stream_that_never_waited_has_nothing_to_drain():
    assert course().drained_after(RATE) == 0


def test_a_backlog_is_gone_when_the_last_second_of_it_is_worked_off():
    assert course(delay=until(25.0)).drained_after(RATE) == pytest.approx(5.0, abs=0.01)


def test_an_event_that_was_given_up_waits_no_longer():
    given_up = range(100, 200)
    gone = course(given_up=given_up)
    assert gone.drained_after(RATE) == 0
    assert course(delay=until(25.0), given_up=given_up).drained_after(RATE) == pytest.approx(5.0)


def test_the_rate_is_full_from_the_first_second_with_all_of_it():
    stopped = course(delay=lambda at: 30 - at if 10 <= at < 30 else 0.01)
    assert stopped.full_after(RATE) == pytest.approx(10.0, abs=0.01)


def test_a_rate_that_stays_below_is_never_full():
    halved = course()._replace(handled={n: n / 5 + 20 for n in range(100)})
    assert halved.full_after(RATE) is None


def test_the_slowest_event_is_told_from_its_publication_on():
    assert course(delay=until(25.0)).slowest() == pytest.approx(15.0)
