"""Which processes a supervisor starts, drains, stops and kills."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from angzarr.supervisor.process_plan import (
    FIRST_RESTART,
    GROWS_EVERY,
    IDLE_FOR,
    LASTED,
    LONGEST_RESTART,
    Do,
    ProcessPhase,
    ProcessPlan,
    SinglePlan,
)

SILENT_AFTER = 60.0
READY = {"ready": True, "live": True, "owner": "o"}


def plan_of(least: int, most: int | None = None) -> ProcessPlan:
    return ProcessPlan(least, most or least, SILENT_AFTER, lambda: 1.0)


def done(plan: ProcessPlan, now: float = 0.0) -> list[tuple[Do, int]]:
    return [(order.do, order.number) for order in plan.due(now)]


def up(plan: ProcessPlan, *numbers: int, now: float = 0.0, **words: object) -> None:
    for number in numbers:
        plan.say(number, {**READY, "owner": f"owner-{number}", **words}, now)


def test_the_first_process_is_started_alone_and_the_rest_once_it_is_up():
    plan = plan_of(3)
    assert done(plan) == [(Do.START, 1)]
    assert done(plan) == []
    up(plan, 1)
    assert done(plan) == [(Do.START, 2), (Do.START, 3)]


def settled(number: int, most: int | None = None) -> ProcessPlan:
    plan = plan_of(number, most)
    for _ in range(2):
        plan.due(0.0)
        up(plan, *plan.processes)
    return plan


def test_the_first_death_of_a_process_that_worked_costs_no_time():
    plan = settled(2)
    assert plan.end(1, failed=True, now=5.0) == 0.0
    (order,) = plan.due(5.0)
    assert (order.do, order.number, order.owners) == (Do.START, 1, ("owner-1",))


def test_deaths_in_a_row_of_what_never_was_ready_double_the_pause_up_to_half_a_minute():
    plan = settled(1)
    plan.end(1, failed=True, now=1.0)
    now, pauses = 1.0, []
    for _ in range(12):
        assert done(plan, now) == [(Do.START, 1)]
        up(plan, 1, now=now, ready=False)
        pauses.append(plan.end(1, failed=True, now=now))
        assert not plan.due(now + pauses[-1] - 0.01)
        now += pauses[-1]
    assert pauses[:4] == [FIRST_RESTART * 2**n for n in range(4)]
    assert pauses[-1] == LONGEST_RESTART


def test_a_process_that_ends_well_before_it_was_ready_is_not_started_in_a_hot_loop():
    plan = settled(1)
    plan.end(1, failed=True, now=1.0)
    plan.due(1.0)
    assert plan.end(1, failed=False, now=1.0) == FIRST_RESTART


def test_a_wave_of_deaths_of_what_worked_costs_half_a_second_each():
    plan = settled(1)
    now, pauses = 100.0, []
    for _ in range(5):
        up(plan, 1, now=now)
        pauses.append(plan.end(1, failed=True, now=now))
        now += pauses[-1]
        plan.due(now)
    assert pauses == [0.0, *[FIRST_RESTART] * 4]
    up(plan, 1, now=now)
    assert plan.end(1, failed=True, now=now + LASTED) == 0.0


def test_owners_of_all_that_died_go_to_the_next_process_once():
    plan = settled(3)
    plan.end(1, failed=True, now=1.0)
    plan.end(3, failed=True, now=1.0)
    first, second = plan.due(50.0)
    assert set(first.owners) == {"owner-1", "owner-3"}
    assert second.owners == ()


def test_the_claims_of_a_process_out_of_reach_are_not_freed():
    plan = settled(1)
    plan.forget(1)
    (order,) = plan.due(1.0)
    assert (order.number, order.owners) == (1, ())


def test_a_process_that_ended_well_leaves_no_owner():
    plan = settled(1)
    plan.end(1, failed=False, now=1.0)
    (order,) = plan.due(1.0)
    assert order.owners == ()


def test_a_process_that_drains_is_replaced_at_once_under_another_number():
    plan = settled(2)
    up(plan, 1, draining="it has run as many tasks as it may")
    assert done(plan) == [(Do.START, 3)]
    assert plan.end(1, failed=False, now=1.0) == 0.0
    assert done(plan, 1.0) == []


def test_a_reload_replaces_one_by_one_each_after_a_new_one_is_ready():
    plan = settled(2)
    plan.reload(2)
    assert done(plan) == [(Do.START, 3)]
    up(plan, 3, ready=False)
    assert done(plan) == []
    up(plan, 3)
    assert done(plan) == [(Do.DRAIN, 2), (Do.START, 4)]
    up(plan, 4)
    assert done(plan) == [(Do.DRAIN, 1)]
    assert {one.generation for one in plan.processes.values() if one.phase is ProcessPhase.UP} == {
        2
    }


def test_a_reload_whose_processes_die_leaves_the_old_ones():
    plan = settled(2)
    plan.reload(2)
    for now in range(10, 400, 40):
        plan.due(float(now))
        up(plan, 1, 2, now=float(now))
        plan.end(3, failed=True, now=float(now))
    assert [plan.processes[number].phase for number in (1, 2)] == [ProcessPhase.UP, ProcessPhase.UP]


def test_a_process_that_says_nothing_is_killed_and_one_that_stands_still_is_asked_to_stop():
    plan = settled(2)
    up(plan, 1, now=SILENT_AFTER)
    assert done(plan, SILENT_AFTER + 0.1) == [(Do.KILL, 2)]
    plan.end(2, failed=True, now=SILENT_AFTER + 0.2)
    up(plan, 1, now=SILENT_AFTER + 0.2, live=False)
    assert (Do.STOP, 1) in done(plan, SILENT_AFTER + 0.2)
    assert (Do.KILL, 1) in done(plan, 3 * SILENT_AFTER)


def test_a_process_that_others_ended_is_not_replaced():
    plan = settled(2)
    plan.leave(1)
    plan.end(1, failed=False, now=1.0)
    assert done(plan, 1.0) == []
    assert plan.wanted == 1


def test_it_grows_while_every_process_is_full_and_shrinks_after_it_was_idle():
    plan = settled(1, most=2)
    up(plan, 1, load=1.0)
    assert done(plan, 1.0) == []
    assert done(plan, 1.0 + GROWS_EVERY) == [(Do.START, 2)]
    up(plan, 1, 2, now=5.0, load=1.0)
    assert done(plan, 5.0) == done(plan, 20.0) == []  # no more than two
    up(plan, 1, 2, now=21.0, load=0.1)
    assert done(plan, 21.0) == []
    up(plan, 1, 2, now=21.0 + IDLE_FOR, load=0.1)
    assert done(plan, 21.0 + IDLE_FOR) == [(Do.DRAIN, 2)]


def test_one_idle_process_of_two_is_kept_for_what_comes_next():
    plan = settled(1, most=2)
    plan.resize(1)
    plan.due(0.0)
    up(plan, 2)
    for now in (1.0, 1.0 + 2 * IDLE_FOR):
        up(plan, 1, now=now, load=0.8)
        up(plan, 2, now=now, load=0.0)
        assert done(plan, now) == []


@pytest.mark.parametrize(("steps", "wanted"), [((1,), 3), ((-1, -1, -1), 1)])
def test_it_is_resized_by_hand_but_never_to_none(steps, wanted):
    plan = settled(2)
    for step in steps:
        plan.resize(step)
    assert plan.wanted == wanted


def test_nothing_starts_once_it_stops():
    plan = settled(2)
    plan.stop()
    plan.end(1, failed=True, now=1.0)
    assert done(plan, 100.0) == []


def test_a_single_process_never_runs_twice():
    plan = SinglePlan(lambda: 1.0)
    assert [order.do for order in plan.due(1, 0.0)] == [Do.START]
    assert [order.do for order in plan.due(2, 0.0)] == [Do.STOP]
    assert plan.due(2, 50.0) == []
    assert plan.end(failed=False, now=50.0) == 0.0
    assert [(order.do, order.generation) for order in plan.due(2, 50.0)] == [(Do.START, 2)]
    pause = plan.end(failed=True, now=51.0)
    assert plan.due(2, 51.0) == []
    assert [order.do for order in plan.due(2, 51.0 + pause)] == [Do.START]


class PlanModel(RuleBasedStateMachine):
    """Processes come up, die, drain, hang and are reloaded in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.plan = plan_of(2, 4)
        self.there: set[int] = set()

    @rule(seconds=st.floats(0.1, 40.0))
    def wait(self, seconds):
        self.now += seconds
        for number in self.there:
            self.plan.say(number, {**self._words(number)}, self.now)
        self.look()

    def _words(self, number):
        one = self.plan.processes[number]
        return {**READY, "draining": one.phase is ProcessPhase.DRAINING, "owner": f"o{number}"}

    def look(self):
        for order in self.plan.due(self.now):
            if order.do is Do.START:
                assert order.number not in self.there, "two processes of one number"
                assert order.generation == self.plan.generation
                self.there.add(order.number)
            else:
                assert order.number in self.there

    @precondition(lambda self: self.there)
    @rule(data=st.data(), failed=st.booleans())
    def end(self, data, failed):
        number = data.draw(st.sampled_from(sorted(self.there)))
        self.there.remove(number)
        self.plan.end(number, failed=failed, now=self.now)
        self.look()

    @precondition(lambda self: self.plan.was_up)
    @rule()
    def reload(self):
        self.plan.reload(self.plan.generation + 1)
        self.look()

    @rule(step=st.sampled_from([-1, 1]))
    def resize(self, step):
        self.plan.resize(step)
        self.look()

    @invariant()
    def there_are_never_more_than_one_too_many(self):
        active = [
            one for one in self.plan.processes.values() if one.phase is not ProcessPhase.DRAINING
        ]
        assert len(active) <= self.plan.most + 1

    def teardown(self):
        """Left alone, it has as many as it should, all of the last generation."""
        for _ in range(40):
            self.now += LONGEST_RESTART
            for number in sorted(self.there):
                if self.plan.processes[number].phase is ProcessPhase.DRAINING:
                    self.there.remove(number)
                    self.plan.end(number, failed=False, now=self.now)
                else:
                    self.plan.say(number, {**self._words(number), "load": 0.7}, self.now)
            self.look()
        active = [one for one in self.plan.processes.values() if one.phase is ProcessPhase.UP]
        assert len(active) == self.plan.wanted
        assert {one.generation for one in active} == {self.plan.generation}


TestPlanModel = PlanModel.TestCase
TestPlanModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
