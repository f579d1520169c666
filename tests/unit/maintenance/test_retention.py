"""What goes by its age, in the turns of a thread of its own."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from angzarr.errors import StoreUnavailable
from angzarr.maintenance.retention import BREATH, HOURLY, PAUSE, Aged, Pruning, PruningTurns
from hand_clock import START, HandClock

KEPT = timedelta(days=180)


class Rows:
    """So many that are old enough."""

    def __init__(self, number: int) -> None:
        self.left, self.asked, self.away = number, [], False

    def prune(self, before, /, *, limit):
        if self.away:
            raise StoreUnavailable("the database is away")
        self.asked.append(before)
        removed = min(limit, self.left)
        self.left -= removed
        return removed


@pytest.fixture
def clock():
    return HandClock()


def aged(rows, keep=KEPT):
    return Aged(name="rows", what="rows of long ago", where=rows, keep=keep, batch=10)


def turns(clock, *places, closed=lambda: None):
    prunings = [Pruning(removal=aged(rows), clock=clock) for rows in places]
    return PruningTurns(prunings=prunings, chance=lambda: 0.5, close=closed)


def test_it_goes_by_what_is_kept(clock):
    rows = Rows(25)
    assert [tuple(aged(rows).remove(START)) for _ in range(3)] == [
        (10, True), (10, True), (5, False),
    ]  # fmt: skip
    assert set(rows.asked) == {START - KEPT}


def test_what_is_kept_for_ever_is_not_asked_for():
    rows = Rows(25)
    assert aged(rows, keep=None).remove(START) == (0, False)
    assert rows.asked == []


def test_batches_follow_each_other_with_a_breath_between_and_then_it_waits(clock, caplog):
    caplog.set_level(logging.INFO, "angzarr.pruning")
    first, second = Rows(25), Rows(3)
    both = turns(clock, first, second)
    assert [both.turn() for _ in range(4)] == [BREATH, BREATH, BREATH, HOURLY]
    assert (first.left, second.left) == (0, 0)
    assert caplog.messages == ["removed 3 rows of long ago", "removed 25 rows of long ago"]
    first.left = 1
    clock.sleep(HOURLY * 0.5)
    both.turn()
    assert first.left == 0
    assert PAUSE < HOURLY * 0.5, "the shortest wait is longer than the pause after a look"


def test_one_that_is_away_keeps_no_other_waiting_and_is_said(clock, caplog):
    away, there = Rows(3), Rows(3)
    away.away = True
    both = turns(clock, away, there)
    assert [both.turn(), both.turn()] == [BREATH, HOURLY]
    assert there.left == 0
    assert set(caplog.messages) == {"pruning_waits: rows: the database is away"}
    away.away = False
    both.turn()
    assert away.left == 0


def test_leaving_lets_connections_go(clock):
    closed = []
    turns(clock, closed=lambda: closed.append(1)).leave()
    assert closed == [1]
