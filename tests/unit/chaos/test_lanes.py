"""What is out of order, or not once in the read model, is found; and what is well is let be."""

from __future__ import annotations

from tests.unit.chaos.conftest import a_run, around, cut, disturbed, planned

from chaos.disturbances import What
from chaos.fates import ORDERED
from chaos.history import FAILED
from chaos.lanes import DISORDER, READ_MODEL, check_order, check_read_model

LANE = [planned("ordered", number, root="lane-0", sequence=number) for number in range(3)]


def run_of(number, *span, **more):
    return a_run(*span, event=f"ordered-{number}", handler=ORDERED, **more)


def found(*runs, meanwhile=None, published=LANE):
    breaches = check_order(published, runs, meanwhile or around())
    return [(one.kind, one.event) for one in breaches]


def test_one_after_the_other_is_well():
    assert found(run_of(0, 1.0, 2.0), run_of(1, 2.1, 3.0), run_of(2, 3.1, 4.0)) == []


def test_events_of_other_aggregates_have_no_order():
    other = planned("ordered", 1, root="lane-1", sequence=1)
    assert found(run_of(0, 5.0, 6.0), run_of(1, 1.0, 2.0), published=[LANE[0], other]) == []


def test_what_begins_before_the_one_before_it_is_done_is_out_of_order():
    breach = [(DISORDER, "ordered-1")]
    assert found(run_of(0, 1.0, 2.0), run_of(1, 1.5, 3.0)) == breach
    assert found(run_of(0, 1.0, 2.0, how=FAILED), run_of(1, 2.1, 3.0)) == breach
    assert found(run_of(1, 1.0, 2.0)) == breach, "the one before it never ran"


def test_a_repeat_of_what_was_done_does_not_hold_up_what_comes_then():
    again = run_of(0, 4.0, 5.0)
    assert found(run_of(0, 1.0, 2.0), run_of(1, 2.1, 3.0), again) == []


def test_a_run_that_was_cut_is_not_done():
    killed = cut(event="ordered-0", handler=ORDERED)
    assert found(killed, run_of(1, 2.0, 3.0)) == [(DISORDER, "ordered-1")]


def test_a_stale_run_is_left_to_the_rules():
    frozen = around(disturbed(What.FROZEN, 0.5, 20.0, worker="w2"))
    stale = run_of(1, 1.5, 30.0, worker="w2")
    assert frozen.is_stale(stale)
    assert found(run_of(0, 1.0, 2.0), stale, meanwhile=frozen) == []


def test_a_read_model_has_each_event_once_and_in_order():
    def breaches(*seen):
        return [(one.kind, one.event) for one in check_read_model(LANE, seen)]

    whole = [("lane-0", number) for number in range(3)]
    assert breaches(*whole) == []
    assert breaches(*whole, ("lane-1", 7)) == [], "it was not confirmed"
    wrong = [(READ_MODEL, "ordered-0")]
    for seen in (whole[:2], [*whole, whole[2]], [whole[1], whole[0], whole[2]], []):
        assert breaches(*seen) == wrong
