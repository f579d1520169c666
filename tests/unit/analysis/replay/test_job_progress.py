from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hand_clock import START

from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay import job_progress
from angzarr.analysis.replay.job import ItemState, JobItem, JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.replay.job_limits import Target, capacity
from angzarr.analysis.replay.job_progress import WINDOW, EntrySnapshot, ItemAnswer
from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import Phase

HANDLED, FAILED, UNANSWERED = ItemState.HANDLED, ItemState.FAILED, ItemState.UNANSWERED


def job_of(total=100, plan=None, **fields):
    plan = plan or JobPlan(rate=None)
    known = {"id": "j", "selection": Selection(), "created_by": "ann", "created_at": START}
    return ReplayJob(**known | {"plan": plan, "total": total} | fields)


class Course:
    """A job whose replays end as `fate` says; everything that holds of any course is checked."""

    def __init__(self, job, fate):
        self.job, self.fate = job, fate
        self.now = START
        self.out = []
        self.sent_at = []
        self.halted_with = None

    def begin(self, phase=None, most=10**9):
        count = min(capacity(self.job, self.now, phase and Target(phase)).most, most)
        self.job = job_progress.begun(self.job, count, self.now)
        self.out += [(self.job.round, len(self.sent_at) + n) for n in range(count)]
        self.sent_at += [self.now] * count
        self.check()
        return count

    def answer(self, count=10**9):
        ended, self.out = self.out[:count], self.out[count:]
        answers = [ItemAnswer(self.fate(number), round_) for round_, number in ended]
        self.job = job_progress.answered(self.job, answers, self.now)
        if self.job.status is JobStatus.HALTED:
            self.halted_with = self.halted_with or len(self.sent_at)
        self.check()

    def check(self):
        job, plan = self.job, self.job.plan
        assert job.out == len(self.out) <= plan.in_flight
        assert job.total == job.sent + job.refused + job.left
        assert job.left >= 0
        assert job.sent == len(self.sent_at)
        if job.status is JobStatus.HALTED:
            assert capacity(job, self.now + timedelta(days=1), None).most == 0
        if plan.rate is not None:
            lately = [at for at in self.sent_at if at > self.now - timedelta(seconds=10)]
            assert len(lately) <= 10 * plan.rate + max(1.0, plan.rate) + 1

    def run(self):
        """Begin and answer all that may be, until nothing moves."""
        while self.begin() or self.out:
            self.answer()
        return self.job


plans = st.builds(
    JobPlan,
    stages=st.lists(st.integers(1, 60), max_size=4, unique=True).map(lambda x: tuple(sorted(x))),
    rate=st.none() | st.floats(0.1, 50),
    in_flight=st.integers(1, 30),
    halt_share=st.floats(0, 0.99),
)
phases = st.sampled_from([None, *Phase])


@settings(max_examples=150, deadline=None)
@given(plans, st.integers(0, 200), st.floats(0, 1), st.data())
def test_whatever_happens_a_job_keeps_its_bounds_and_its_count(plan, total, share, data):
    chance = random.Random(data.draw(st.integers(0, 99)))
    course = Course(job_of(total, plan), lambda _n: FAILED if chance.random() < share else HANDLED)
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.integers(0, 5)):
            case 0 | 1:
                course.begin(data.draw(phases), data.draw(st.integers(0, 20)))
            case 2 | 3:
                course.answer(data.draw(st.integers(0, 20)))
            case 4:
                course.now += timedelta(seconds=data.draw(st.floats(0, 20)))
            case 5:
                change = data.draw(st.sampled_from([job_progress.paused, job_progress.resumed]))
                course.job = change(course.job, course.now, "ann") or course.job
                course.check()


@settings(max_examples=50, deadline=None)
@given(plans, st.integers(0, 300))
def test_what_is_well_is_replayed_whole_and_done(plan, total):
    course = Course(job_of(total, replace(plan, rate=None)), lambda _n: HANDLED)
    job = job_progress.settled(course.job, START) if not total else course.run()
    assert (job.status, job.handled) == (JobStatus.DONE, total)


@given(st.integers(2, 10_000))
def test_a_sick_dependency_costs_one_replay_at_the_default_plan(total):
    job = Course(job_of(total, JobPlan()), lambda _n: FAILED).run()
    assert (job.status, job.sent) == (JobStatus.HALTED, 1)


@settings(deadline=None)
@given(st.integers(25, 400), st.integers(1, 100))
def test_one_that_falls_ill_in_the_last_stage_costs_the_window_and_what_is_out(when, in_flight):
    plan = JobPlan(rate=None, in_flight=in_flight)
    course = Course(job_of(1000, plan), lambda n: FAILED if n >= when else HANDLED)
    job = course.run()
    assert job.status is JobStatus.HALTED
    assert job.failed <= plan.halt_share * WINDOW + in_flight


@pytest.mark.parametrize("state", [FAILED, UNANSWERED])
def test_a_failed_canary_halts_the_job(state):
    job = Course(job_of(), lambda _n: state).run()
    assert (job.status, job.sent) == (JobStatus.HALTED, 1)
    assert "the canary failed" in job.said


def test_stages_begin_only_once_all_of_the_one_before_were_answered():
    course = Course(job_of(1000), lambda _n: HANDLED)
    for size in (1, 4, 20, 100):
        assert course.begin() == size
        course.answer(size - 1)
        assert course.begin() == (0 if size < 100 else 99)
        course.answer()


def test_a_few_failures_are_borne_and_told():
    job = Course(job_of(500), lambda n: FAILED if n % 10 == 9 else HANDLED).run()
    assert (job.status, job.failed, job.handled) == (JobStatus.DONE, 50, 450)


def test_a_stage_is_judged_by_its_size_and_not_by_its_first_answers():
    plan = JobPlan(stages=(1, 21), rate=None, halt_share=0.2)
    course = Course(job_of(100, plan), lambda n: FAILED if 1 <= n <= 4 else HANDLED)
    assert course.run().status is JobStatus.DONE
    course = Course(job_of(100, plan), lambda n: FAILED if 1 <= n <= 5 else HANDLED)
    assert course.run().status is JobStatus.HALTED


def test_the_last_entries_failing_leave_nothing_to_halt():
    job = Course(job_of(1), lambda _n: FAILED).run()
    assert (job.status, job.failed) == (JobStatus.DONE, 1)


OPEN = BreakerSeen(
    name="wave:order", phase=Phase.OPEN, retry_at=START + timedelta(minutes=1, seconds=2)
)
ISOLATED = BreakerSeen(name="bank", phase=Phase.ISOLATED)


@pytest.mark.parametrize(
    ("barring", "said"),
    [
        ((OPEN,), "waits: breaker wave:order is open (next probe at 12:01:02 UTC)"),
        ((ISOLATED,), "waits: breaker bank is isolated"),
        ((replace(OPEN, retry_at=None),), "waits: breaker wave:order is open"),
        (
            (replace(OPEN, retry_at=START + timedelta(days=1)),),
            "waits: breaker wave:order is open (next probe at 2026-01-02 12:00:00 UTC)",
        ),
        (
            (ISOLATED, OPEN),
            "waits: breaker bank is isolated, wave:order is open (next probe at 12:01:02 UTC)",
        ),
        (
            tuple(replace(ISOLATED, name=f"b{number}") for number in range(7)),
            "waits: breaker b0 is isolated, b1 is isolated, b2 is isolated and 4 more",
        ),
    ],
)
def test_nothing_begins_into_an_open_breaker_and_the_job_names_it(barring, said):
    target = Target(barring[0].phase, barring=barring)
    assert capacity(job_of(handlers=("orders.sync",)), START, target) == (0, said)


def test_half_open_lets_one_out_at_a_time():
    course = Course(job_of(plan=JobPlan(stages=(), rate=None)), lambda _n: HANDLED)
    assert course.begin(Phase.HALF_OPEN) == 1
    assert course.begin(Phase.HALF_OPEN) == 0
    course.answer()
    assert course.begin(Phase.HALF_OPEN) == 1
    assert course.begin(None) == 98


def test_a_resumed_job_begins_with_a_new_canary_that_old_answers_do_not_judge():
    course = Course(job_of(plan=JobPlan(stages=(1,), rate=None, in_flight=20)), lambda n: FAILED)
    course.job = replace(course.job, stage=1)
    course.begin()
    course.job = job_progress.paused(course.job, START, "ann")
    course.job = job_progress.resumed(course.job, START, "ann")
    assert (course.job.round, course.job.stage) == (2, 0)
    course.answer()
    assert (course.job.status, course.job.failed) == (JobStatus.RUNNING, 20)
    assert course.begin() == 1


def test_the_rate_is_kept_over_time():
    course = Course(job_of(plan=JobPlan(stages=(), rate=10)), lambda _n: HANDLED)
    assert course.begin() == 10
    assert course.begin() == 0
    course.now += timedelta(seconds=0.35)
    assert course.begin() == 3
    course.now -= timedelta(hours=1)
    assert course.begin() == 0


@pytest.mark.parametrize(
    ("status", "replays", "letter_replay", "ended"),
    [
        (Status.RETRYING, 2, 1, None),
        (Status.RESOLVED, 2, 1, HANDLED),
        (Status.SKIPPED, 2, 1, HANDLED),
        (Status.HELD, 2, 1, UNANSWERED),
        (Status.FAILED, 2, 2, FAILED),
        (Status.HELD, 2, 2, FAILED),
        (Status.RETRYING, 3, 2, FAILED),
        (Status.RESOLVED, 3, 1, FAILED),
    ],
)
def test_the_entry_tells_how_its_replay_ended(status, replays, letter_replay, ended):
    assert job_progress.ending(EntrySnapshot(status, replays, letter_replay), 2) is ended


def test_an_entry_that_is_gone_is_never_answered():
    assert job_progress.ending(None, 1) is UNANSWERED


@pytest.mark.parametrize(
    ("seen", "chosen_as", "said"),
    [
        (None, Status.HELD, "removed"),
        (EntrySnapshot(Status.RETRYING, 1, 0), Status.HELD, "the entry is retrying"),
        (EntrySnapshot(Status.RESOLVED, 1, 0), Status.HELD, "the entry is resolved"),
        (EntrySnapshot(Status.SKIPPED, 1, 0), Status.HELD, "the entry is skipped meanwhile"),
        (EntrySnapshot(Status.HELD, 10, 0), Status.HELD, "replayed 10 times"),
        (EntrySnapshot(Status.SKIPPED, 1, 0), Status.SKIPPED, ""),
        (EntrySnapshot(Status.FAILED, 9, 0), Status.HELD, ""),
    ],
)
def test_what_changed_since_it_was_chosen_is_refused_with_the_reason(seen, chosen_as, said):
    item = JobItem(1, "e", ItemState.CHOSEN)
    reason = job_progress.refusal(item, seen, chosen_as, 10)
    assert said in reason
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(("replays", "said"), [(1, ""), (2, "replayed since the job chose it")])
def test_what_was_replayed_since_it_was_chosen_is_not_what_was_approved(replays, said):
    item, seen = JobItem(1, "e", ItemState.CHOSEN, 2), EntrySnapshot(Status.HELD, replays, replays)
    reason = job_progress.refusal(item, seen, Status.HELD, 10)
    assert said in reason
    assert bool(said) == bool(reason)


def test_what_was_not_sent_after_all_makes_room_again():
    job = job_progress.begun(job_of(), 1, START)
    item = JobItem(1, "e", ItemState.REFUSED, 1, 1)
    job = job_progress.noted(job, [item], "", START)
    assert (job.sent, job.refused, capacity(job, START, None).most) == (0, 1, 1)


def test_only_another_person_approves():
    job = job_of(status=JobStatus.PROPOSED)
    assert job_progress.approved(job, START, "ann") is None
    assert job_progress.approved(job, START, "Ann@other-host") is None
    assert job_progress.approved(job, START, "bob").approved_by == "bob"
    assert job_progress.approved(job_of(), START, "bob") is None


@pytest.mark.parametrize(
    "plan",
    [
        {"stages": (5, 5)},
        {"stages": (0,)},
        {"stages": tuple(range(1, 40))},
        {"rate": 0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"in_flight": 0},
        {"halt_share": 1},
        {"halt_share": -0.1},
    ],
)
def test_plans_that_cannot_work_are_refused(plan):
    with pytest.raises(ConfigurationError):
        JobPlan(**plan)
