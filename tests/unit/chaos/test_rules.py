"""What the runs of one pair must look like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.chaos.conftest import a_run, around, cut, disturbed

from chaos import rules
from chaos.disturbances import Outage, What
from chaos.fates import LIMITED, MOST_ATTEMPTS, MOST_STARTS
from chaos.history import DYING, FAILED, POSTPONED, SKIPPED


def kinds(*runs, around=None):
    found = rules.check_runs("ok-1", runs, around or rules.Circumstances())
    return [breach.kind for breach in found]


# -- what is right ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs",
    [
        [a_run()],
        [a_run(1, 2, FAILED), a_run(3, 4, attempt=2, hop=1)],
        [a_run(1, 2, POSTPONED), a_run(3, 4, hop=1)],
        [a_run(1, 2, DYING), a_run(3, 4)],
        [a_run(1, 2, FAILED), a_run(3, 4, replay=1)],
    ],
    ids=["one", "a retry", "a postponement", "it ended its process", "a replay"],
)
def test_what_was_asked_for_is_right(runs):
    assert kinds(*runs) == []


def test_a_run_that_a_fault_cut_short_may_run_again():
    again = [cut(1.0), a_run(10, 11, worker="w2")]
    assert kinds(*again) == [rules.CUT]
    assert kinds(*again, around=around(disturbed(start=1.5))) == []


# -- effects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ended", SKIPPED])
def test_a_complete_effect_must_not_be_followed_by_another_run(how):
    assert kinds(a_run(1, 2, how), a_run(5, 6, worker="w2")) == [rules.REPEATED]


def test_a_kill_long_after_the_effect_excuses_nothing():
    twice = [a_run(1, 2), a_run(10, 11, worker="w2")]
    assert kinds(*twice, around=around(disturbed(start=9.0))) == [rules.REPEATED]
    assert kinds(*twice, around=around(disturbed(start=2.5))) == []


def test_what_was_disturbed_after_the_second_run_began_excuses_nothing():
    twice = [a_run(1, 2), a_run(2.5, 3, worker="w2")]
    assert kinds(*twice, around=around(disturbed(start=2.8))) == [rules.REPEATED]


def test_another_workers_death_excuses_nothing():
    twice = [a_run(1, 2), a_run(5, 6, worker="w2")]
    assert kinds(*twice, around=around(disturbed(start=2.1, worker="w3"))) == [rules.REPEATED]
    assert kinds(*twice, around=around(disturbed(start=2.1, pid=99))) == [rules.REPEATED]


def test_two_runs_of_one_event_must_not_overlap():
    both = [a_run(1, 5), a_run(2, 3, worker="w2")]
    assert kinds(*both) == [rules.OVERLAP]
    frozen = around(disturbed(What.FROZEN, 1.5, 12))
    assert kinds(*both, around=frozen) == []


def test_a_repetition_of_a_repetition_is_seen_past_a_cut_run():
    runs = [a_run(1, 2), cut(5, worker="w2"), a_run(10, 11, worker="w3")]
    killed = around(disturbed(start=6.0, worker="w2"))
    assert kinds(*runs, around=killed) == [rules.REPEATED, rules.REPEATED]


def test_a_frozen_worker_may_begin_what_it_was_about_to_begin_the_moment_it_goes_on():
    runs = [a_run(5, 6, worker="w2"), a_run(15.1, 15.2, worker="w1")]
    frozen = around(disturbed(What.FROZEN, 3.0, 15.0))
    assert kinds(*runs) == [rules.REPEATED]
    assert kinds(*runs, around=frozen) == []
    late = [runs[0], a_run(15.6, 16, worker="w1")]
    assert kinds(*late, around=frozen) == [rules.REPEATED]
    behind = [a_run(5, 6, FAILED, worker="w2"), a_run(7, 8, attempt=2, hop=1, worker="w2")]
    assert kinds(*behind, a_run(15.1, 15.2, FAILED), around=frozen) == []


def test_what_a_frozen_worker_did_after_another_had_its_event_does_not_end_it():
    frozen = around(disturbed(What.FROZEN, 3.0, 15.0))
    stale, again = a_run(15.1, 15.2), a_run(18, 19, worker="w1")
    taken_over = a_run(14.9, 15.0, DYING, worker="w2")
    assert kinds(taken_over, stale, again, around=frozen) == []
    assert kinds(taken_over, stale, again) == [rules.REPEATED]
    assert kinds(stale, again, around=frozen) == [rules.REPEATED], "nobody had taken it over"


def test_a_run_soon_after_the_worker_goes_on_counts_as_an_attempt():
    frozen = around(disturbed(What.FROZEN, 3.0, 15.0))
    runs = [
        a_run(1, 2, FAILED, worker="w2"),
        a_run(16, 16.1, FAILED, attempt=2, hop=1, worker="w1"),
        a_run(18, 19, attempt=3, hop=2, worker="w2"),
    ]
    assert kinds(*runs, around=frozen) == []


# -- attempts --------------------------------------------------------------------------------------


def test_an_attempt_that_failed_must_not_run_again():
    twice = [a_run(1, 2, FAILED), a_run(5, 6, FAILED, worker="w2")]
    assert kinds(*twice) == [rules.TWICE]
    assert kinds(*twice, around=around(disturbed(start=2.5))) == []


def test_a_postponement_must_not_run_again_at_its_hop():
    assert kinds(a_run(1, 2, POSTPONED), a_run(5, 6)) == [rules.TWICE]


def test_attempts_must_not_go_down():
    back = [a_run(1, 2, FAILED, attempt=2, hop=1), a_run(3, 4, attempt=1)]
    assert kinds(*back) == [rules.BACKWARDS]
    assert rules.BACKWARDS in kinds(*back, around=around(disturbed(start=2.5)))


def test_no_attempt_is_left_out():
    assert kinds(a_run(1, 2, FAILED), a_run(3, 4, attempt=3, hop=2)) == [rules.JUMPED]


def test_a_time_limit_may_use_an_attempt_up_while_its_claim_waits_for_the_store():
    limited = {"handler": LIMITED, "how": DYING}
    runs = [a_run(1, 1, **limited), a_run(9, 9, attempt=3, hop=2, **limited)]
    assert kinds(*runs) == [rules.JUMPED]
    assert kinds(*runs, around=around(outages=[Outage(start=2, end=4)])) == []
    assert kinds(*runs, around=around(disturbed(What.CHILD_FROZEN, 2, 4, pid=9))) == []
    other = [a_run(1, 2, FAILED), a_run(9, 9.5, attempt=3, hop=2)]
    assert kinds(*other, around=around(outages=[Outage(start=2, end=4)])) == [rules.JUMPED]


def test_attempts_stay_within_the_policy():
    more = MOST_ATTEMPTS + 1
    runs = [a_run(n, n + 0.1, FAILED, attempt=n, hop=n - 1) for n in range(1, more + 1)]
    assert kinds(*runs) == [rules.TOO_MANY]
    assert kinds(*runs[:-1]) == []


def test_poison_is_started_no_more_often_than_allowed():
    runs = [a_run(n, n + 0.1, DYING, worker=f"w{n}") for n in range(MOST_STARTS + 1)]
    assert kinds(*runs) == [rules.STARTS]
    assert kinds(*runs[:-1]) == []
    # One of them was killed by the checker: whether that counted is not the product's doing.
    assert kinds(*runs, around=around(disturbed(start=1.05, worker="w1"))) == []
    # One of them began on a worker that went on after its lease had ended: it is fenced.
    frozen = disturbed(What.FROZEN, start=-9, end=1.9, worker="w2")
    assert kinds(*runs, around=around(frozen)) == []
    assert kinds(*runs, around=around(replace(frozen, worker="w9"))) == [rules.STARTS]


def test_a_hard_time_limit_is_an_attempt_and_no_start():
    runs = [a_run(n, n + 0.1, DYING, attempt=n, hop=n - 1) for n in range(1, MOST_ATTEMPTS + 1)]
    assert kinds(*runs) == []


def test_a_run_in_an_outage_is_settled_only_when_it_is_over():
    twice = [a_run(1, 2), a_run(30, 31, worker="w2")]
    killed = disturbed(start=7.0)
    assert kinds(*twice, around=around(killed)) == [rules.REPEATED]
    away = Outage(start=1.5, end=6.5)
    assert kinds(*twice, around=around(killed, outages=[away])) == []
    for_letters = Outage(start=1.5, end=6.5, in_part=True)
    assert kinds(*twice, around=around(killed, outages=[for_letters])) == [rules.REPEATED]
