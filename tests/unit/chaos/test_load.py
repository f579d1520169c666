"""How much waits, by what was sent and what has begun."""

from __future__ import annotations

from tests.unit.chaos.conftest import a_run, planned

from chaos.fates import PAIR, STEPS
from chaos.history import Pair
from chaos.load import LEAST_RATE, MOST_WAITING, awaited, begun_within, seconds_waiting


def due(number, at=0.0):
    return {Pair("chaos.main", f"new-{n}"): at for n in range(number)}


def test_what_waits_is_told_in_seconds_of_the_fleets_own_rate():
    forty_in_ten_seconds = [a_run(n / 4, n / 4) for n in range(1, 41)]
    assert seconds_waiting(due(20), forty_in_ten_seconds, 10.0) == 5.0
    assert seconds_waiting(due(20, at=11.0), forty_in_ten_seconds, 10.0) == 0.0, "not due yet"


def test_what_has_begun_does_not_wait():
    begun = [a_run(n, n, event=f"new-{n}") for n in range(20)]
    assert seconds_waiting(due(20), begun, 20.0) == 0.0


def test_a_fleet_that_stands_still_is_given_a_little_to_go_on_with():
    a_little = int(LEAST_RATE * MOST_WAITING)
    assert seconds_waiting(due(a_little), [], 100.0) == MOST_WAITING
    assert seconds_waiting(due(a_little + 1), [], 100.0) > MOST_WAITING


def test_awaited_is_what_begins_by_itself():
    assert [pair.handler for pair in awaited(planned("pair"))] == list(PAIR)
    assert [pair.handler for pair in awaited(planned("chain"))] == [STEPS[0]]
    for never in ("unknown", "revoked", "expired", "garbage", "damaged"):
        assert awaited(planned(never)) == ()


def test_begun_within_counts_both_ends():
    assert begun_within([a_run(n) for n in range(5)], (1, 3)) == 3
