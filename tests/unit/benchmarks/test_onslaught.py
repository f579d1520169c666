from __future__ import annotations

from harness.onslaught import FOR_THE_KILLED, SHORTEST, Toll, lives, toll


def test_the_killed_leave_messages_for_the_last_worker():
    granted = lives(25, 15_000, seed=1)
    assert len(granted) == 25
    assert 0.99 * FOR_THE_KILLED * 15_000 <= sum(granted) <= FOR_THE_KILLED * 15_000


def test_every_kill_meets_a_worker_that_has_begun():
    assert min(lives(25, 15_000, seed=1)) >= SHORTEST / 2 * 15_000 * FOR_THE_KILLED / 25
    assert min(lives(10, 10, seed=1)) == 1


def test_the_same_seed_kills_at_the_same_points():
    assert lives(25, 15_000, seed=1) == lives(25, 15_000, seed=1)
    assert lives(25, 15_000, seed=1) != lives(25, 15_000, seed=2)


def test_a_message_that_never_started_is_lost_and_one_that_started_twice_ran_again():
    assert toll([0, 1, 1, 1, 3, 3], messages=5) == Toll(messages=5, lost=2, ran_again=2)


def test_nothing_is_lost_when_each_started_once():
    assert toll(range(100), messages=100) == Toll(messages=100, lost=0, ran_again=0)
