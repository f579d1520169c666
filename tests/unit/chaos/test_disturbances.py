"""What a fault excuses, and for how long."""

from __future__ import annotations

import pytest
from tests.unit.chaos.conftest import a_run, around, cut, disturbed

from chaos.canary import lapses, silences
from chaos.disturbances import (
    RETURN,
    SETTLE,
    Circumstances,
    Outage,
    What,
    ended_with_their_process,
)
from chaos.fates import LIMITED
from chaos.history import DYING, FAILED


@pytest.mark.parametrize(
    "what", [what for what in What if what not in {What.CHILD_FROZEN, What.DRAINED}]
)
def test_a_run_without_an_end_is_excused_by_whatever_disturbed_its_worker(what):
    one = disturbed(what, 1.5, 1.6)
    assert around(one).covers(one, cut(1.0))
    assert not around(one).covers(one, cut(1.0, worker="w2"))
    assert not around(one).covers(one, cut(2.0)), "it began when all was over"


@pytest.mark.parametrize("what", [What.KILLED, What.FROZEN, What.LEASES_ENDED])
def test_a_run_with_an_end_is_excused_until_it_is_settled(what):
    soon, late = disturbed(what, 2.0 + SETTLE), disturbed(what, 2.1 + SETTLE)
    assert around(soon).covers(soon, a_run(1, 2))
    assert not around(late).covers(late, a_run(1, 2))


def test_a_frozen_child_excuses_its_own_run_that_has_a_time_limit_and_no_other():
    frozen = disturbed(What.CHILD_FROZEN, 1.5, 4.0, pid=7)
    assert around(frozen).covers(frozen, cut(1.0, pid=7, handler=LIMITED))
    assert around(frozen).covers(frozen, a_run(1, 2, pid=7, handler=LIMITED))
    assert not around(frozen).covers(frozen, cut(1.0, pid=8, handler=LIMITED))
    for run in (cut(1.0, pid=7), a_run(1, 2, pid=7), a_run(2, 3, pid=7), a_run(2, 3, pid=8)):
        assert not around(frozen).covers(frozen, run)
        assert not around(frozen).is_stale(run)


def test_what_begins_in_another_process_than_the_frozen_one_is_not_stale():
    frozen = around(disturbed(What.FROZEN, 1.0, 4.0, pid=7))
    assert frozen.is_stale(a_run(4.1, 5, pid=7))
    assert not frozen.is_stale(a_run(4.1, 5, pid=8))


def test_an_orderly_stop_excuses_no_run_with_an_end():
    stop = disturbed(What.STOPPED, 1.5, 4.0)
    assert not around(stop).covers(stop, a_run(1, 2))


def test_an_orderly_stop_excuses_what_was_held_for_a_server():
    stop = disturbed(What.STOPPED, 1.5, 4.0)
    held = around(stop, outages=[Outage(start=1.0, end=3.0)])
    assert held.covers(stop, a_run(1, 2))


def test_a_drain_excuses_what_was_held_for_a_server_and_nothing_that_it_cut():
    drain = disturbed(What.DRAINED, 1.5, 12.0)
    assert not around(drain).covers(drain, cut(1.0))
    assert not around(drain).covers(drain, a_run(1, 11.5)), "it has no deadline"
    held = around(drain, outages=[Outage(start=1.0, end=3.0)])
    assert held.covers(drain, a_run(1, 2))


def test_a_handler_that_ends_its_process_excuses_what_had_ended_there_before_and_not_itself():
    dying = a_run(3, 4, DYING, pid=7)
    (one,) = ended_with_their_process([dying, cut(1.0, pid=7)], frozenset({"w1"}))
    before = [a_run(1, 4 - SETTLE, pid=7), a_run(1, 4 - SETTLE, FAILED, pid=7)]
    assert all(around(one).covers(one, run) for run in before)
    for run in (dying, a_run(1, 3.9 - SETTLE, pid=7), a_run(1, 3.9, pid=8), a_run(4.1, 5, pid=7)):
        assert not around(one).covers(one, run)


def test_a_handler_that_ends_a_child_of_a_worker_that_lives_on_excuses_nothing():
    assert not list(ended_with_their_process([a_run(3, 4, DYING)], frozenset({"w2"})))


def test_a_limit_that_ends_a_process_excuses_what_ended_until_then():
    (one,) = ended_with_their_process([a_run(3, 3, DYING, handler=LIMITED)], frozenset({"w1"}))
    assert one.end > one.start
    assert Circumstances(disturbances=[one]).covers(one, a_run(2.5, 2.9))


def test_a_stop_that_was_cut_at_its_deadline_excuses_what_ended_just_then():
    stop = disturbed(What.STOPPED, 1.5, 12.0)
    assert around(stop).covers(stop, a_run(1, 11.5))
    assert not around(stop).covers(stop, a_run(1, 5))


def test_a_lost_connection_excuses_what_ended_about_then_and_nothing_later():
    lost = disturbed(What.CUT_OFF, 5.0, 9.0, worker="")
    assert around(lost).covers(lost, a_run(1, 4))
    assert around(lost).covers(lost, a_run(1, 6))
    assert not around(lost).covers(lost, a_run(1, 2))
    assert not around(lost).covers(lost, a_run(1, 8))


def test_redis_away_excuses_nothing_before_leases_end():
    assert lapses([Outage(start=0, end=3.5)]) == []
    (long,) = lapses([Outage(start=0, end=10)])
    assert long.what is What.LEASES_ENDED
    assert (long.start, long.end) == (0, 10 + SETTLE)


def test_absences_with_no_time_to_renew_between_them_are_one():
    close = [Outage(start=0, end=2), Outage(start=3, end=5)]
    assert [(one.start, one.end) for one in lapses(close)] == [(0, 5 + SETTLE)]
    assert lapses([Outage(start=0, end=2), Outage(start=7, end=9)]) == []
    assert lapses([Outage(start=0, end=9, in_part=True)]) == []


def test_a_store_that_nobody_took_away_and_that_was_silent_was_away():
    assert silences([1.0, 1.3, 1.6, 9.0, 9.2]) == [Outage(start=1.6, end=9.0)]


def test_one_outage_after_another_keeps_a_run_unsettled():
    first, second = Outage(start=1, end=3), Outage(start=6, end=9)
    assert around(outages=[second, first]).settled_by(a_run(1, 2)) == 9 + RETURN
    assert around(outages=[second]).settled_by(a_run(1, 2)) == 2 + SETTLE


def test_letters_away_delays_what_failed_alone():
    away = around(outages=[Outage(start=1, end=5, in_part=True)])
    assert away.settled_by(a_run(1, 2, FAILED)) == 5 + RETURN
    assert away.settled_by(a_run(1, 2)) == 2 + SETTLE


def test_what_ended_before_a_server_that_is_back_was_noticed_is_unsettled_so_long():
    back = around(outages=[Outage(start=1, end=5)])
    assert back.settled_by(a_run(5.5, 5.6)) == 5 + RETURN
    assert back.settled_by(a_run(11, 12)) == 12 + SETTLE
