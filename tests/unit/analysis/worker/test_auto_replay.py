"""A held group is replayed by itself once its cause is gone, and never again and again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import HOLD, letter_of, message_of
from tests.hand_clock import START
from tests.unit.analysis.replay.test_job_runner import JobWorld
from tests.unit.analysis.test_compensation_by_rule import RULE as REFUND

from angzarr.analysis.ledger.entry import FailureClass, Hold, Status, read_word
from angzarr.analysis.ledger.group import Amendment, GroupStatus
from angzarr.analysis.ledger.ledger import Decided, EntryFilter
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.analysis.replay.job import AUTOMATIC, JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.worker import auto_replay as recovering
from angzarr.analysis.worker.auto_replay import (
    FIRST_PAUSE,
    LEFT_TO_PEOPLE,
    LONGEST_PAUSE,
    LOOK_EVERY,
    AutoReplay,
    may_begin,
    pause_after,
)
from angzarr.events import headers as names

DEFECT = {"category": "unknown", "error_type": "shop.Oops", "version": "1.2"}


class RecoveringWorld(JobWorld):
    """A worker that recovers groups, and a fleet that is told which releases fail no more."""

    def __init__(self) -> None:
        self.fixed_after = set()
        self.release = "1.3"
        super().__init__()

    def start_worker(self, **options):
        worker = super().start_worker(**options)
        waking = next(duty for duty in worker.duties if duty.name == "due entries")
        gathering = replace(waking.deciding.gathering, releases=lambda: self.newer)
        self.deciding = replace(waking.deciding, gathering=gathering)
        recovering = AutoReplay(
            ledger=self.ledger,
            groups=self.ledger,
            jobs=self.jobs,
            deciding=self.deciding,
            clock=self.clock,
            barred=lambda: self.barred,
            running=lambda _handler: self.release,
            most_replays=3,
        )
        worker.duties = (*worker.duties, recovering)
        return worker

    def newer(self, _handler, release):
        return release in self.fixed_after

    def file(self, count, **fields):
        for number in range(count):
            event = f"e{number}"
            letter = letter_of(event, fingerprint="g1", message=message_of(event), **fields)
            self.queue.send(letter)
        self.worker.step()
        return {entry.status for entry in self.entries}

    @property
    def entries(self):
        return self.ledger.get_failed_events(status=None).entries

    @property
    def jobs_begun(self):
        return self.jobs.get_jobs().jobs

    def later(self, **failing):
        """Let the time of a look go by, and all that follows; replays fail as *failing* says."""
        self.clock.sleep(LOOK_EVERY)
        for _ in range(10):
            self.worker.step()
            for message in self.publisher.sent[self.answered :]:
                self.answered += 1
                self._end(message, failing)
        self.worker.step()

    def _end(self, message, failing):
        if not failing:
            self.answer(message)
            return
        event, replay = message.headers[names.EVENT_ID], message.headers[names.REPLAY]
        said = {"fingerprint": "g1", **failing}
        letter = letter_of(event, replay=replay, message=message, **said)
        self.queue.send(letter)


@pytest.fixture
def world():
    return RecoveringWorld()


def test_defects_are_replayed_once_a_newer_release_runs(world):
    assert world.file(40, **DEFECT) == {Status.HELD}
    world.later()
    assert world.jobs_begun == ()
    world.fixed_after.add("1.2")
    world.later()
    (job,) = world.jobs_begun
    assert (job.created_by, job.status, job.handled) == (AUTOMATIC, JobStatus.DONE, 40)
    assert "a newer one runs" in job.note
    assert {entry.status for entry in world.entries} == {Status.RESOLVED}


def test_a_class_that_only_a_newer_release_knows_is_not_replayed_by_an_older_one(world):
    world.file(5, **DEFECT)
    newer = replace(HOLD, failure_class=read_word(FailureClass, "legal_hold"))
    held = [Decided(entry_id=e.id, revision=e.revision, decision=newer) for e in world.entries]
    world.ledger.decide(held, by="newer")
    world.fixed_after.add("1.2")
    for _ in range(3):
        world.later()
    assert world.jobs_begun == ()
    assert {entry.failure_class for entry in world.entries} == {"legal_hold"}


def test_what_waits_in_a_class_that_only_a_newer_release_knows_is_left_to_it(world):
    world.file(1, **DEFECT)
    for action in (Action.WAIT, Action.REPLAY):
        (entry,) = world.entries
        newer = EntryDecision(action=action, failure_class=read_word(FailureClass, "quota_spent"),
                         evidence="its month is over")  # fmt: skip
        world.ledger.decide(
            [Decided(entry_id=entry.id, revision=entry.revision, decision=newer)], by="newer"
        )
        for _ in range(3):
            world.later()
        (entry,) = world.entries
        assert (entry.status, entry.failure_class) == (Status.WAITING, "quota_spent")
    assert not world.publisher.sent


@pytest.mark.parametrize("automatic", [True, False])
def test_what_fails_in_a_replay_of_a_job_is_compensated_as_its_rule_says(world, automatic):
    world.rules = (REFUND,)
    world.restart()
    world.file(5, **DEFECT)
    if automatic:
        world.fixed_after.add("1.2")
    else:
        world.jobs.begin(Selection(), JobPlan(), by="ann")
    for _ in range(4):
        world.later(error_type="shop.OutOfStock", error_message="none left")
    (job,) = world.jobs_begun
    assert (job.status, job.sent, job.failed) == (JobStatus.HALTED, 1, 1)
    found = {entry.status: entry for entry in world.entries}
    assert found.keys() == {Status.HELD, Status.COMPENSATED}
    assert "as rule refund-what-was-refused says" in found[Status.COMPENSATED].evidence
    assert len(world.compensations.sent) == 1


def test_a_release_that_mends_nothing_costs_one_replay_and_is_not_tried_again(world):
    world.file(40, **DEFECT)
    world.fixed_after.add("1.2")
    for _ in range(5):
        world.later(**DEFECT)
        world.clock.sleep(LONGEST_PAUSE)
    assert len(world.publisher.sent) == 1
    (job,) = world.jobs_begun
    assert job.status is JobStatus.HALTED


def test_no_retention_lets_a_release_be_tried_again(world):
    world.file(1, **DEFECT)
    world.fixed_after.add("1.2")
    world.later(**DEFECT)
    (job,) = world.jobs_begun
    assert (job.status, job.failed) == (JobStatus.DONE, 1)
    world.clock.sleep(timedelta(days=900))
    assert world.jobs.prune(world.clock.now(), limit=10) == 0
    world.later(**DEFECT)
    assert world.jobs_begun == (job,)


def test_what_a_halted_one_left_is_taken_over_by_the_next(world):
    world.file(40, **DEFECT)
    world.fixed_after.add("1.2")
    world.later(**DEFECT | {"version": "1.3"})
    assert len(world.publisher.sent) == 1
    world.fixed_after.add("1.3")
    world.release = "1.4"
    world.later()
    newest, halted = world.jobs_begun
    assert (halted.status, newest.status, newest.handled) == (
        JobStatus.CANCELLED,
        JobStatus.DONE,
        40,
    )


def test_many_jobs_of_others_hide_no_earlier_one_of_the_group(world, monkeypatch):
    monkeypatch.setattr(recovering, "JOBS", 3)
    world.file(40, **DEFECT)
    world.fixed_after.add("1.2")
    world.later(**DEFECT | {"version": "1.3"})
    assert [job.status for job in world.jobs_begun] == [JobStatus.HALTED]
    for number in range(9):
        world.clock.sleep(timedelta(seconds=1))
        wanted = EntryFilter(fingerprint=f"g{number + 2}")
        world.jobs.begin(Selection(wanted=wanted), JobPlan(), by="ann")
    world.fixed_after.add("1.3")
    world.release = "1.4"
    world.later()
    mine = world.jobs.get_jobs(group="g1").jobs
    assert [job.status for job in mine] == [JobStatus.DONE, JobStatus.CANCELLED]


def test_a_target_that_is_there_again_is_enough(world):
    world.tasks.clear()
    assert world.file(3) == {Status.HELD}
    world.later()
    assert world.jobs_begun == ()
    world.tasks.add("orders.sync")
    world.later()
    assert {entry.status for entry in world.entries} == {Status.RESOLVED}


def test_what_people_look_into_is_left_to_them(world):
    world.file(3, **DEFECT)
    (group,) = world.ledger.get_groups().groups
    acknowledged = Amendment(status=GroupStatus.ACKNOWLEDGED)
    world.ledger.amend(group.fingerprint, acknowledged, revision=group.revision, by="ann")
    world.fixed_after.add("1.2")
    world.later()
    assert world.jobs_begun == ()


def test_nothing_begins_while_the_brake_is_pulled(world):
    world.file(3, **DEFECT)
    world.fixed_after.add("1.2")
    world.barred = "the brake was pulled by ann"
    world.later()
    assert world.jobs_begun == ()
    world.barred = ""
    world.later()
    assert len(world.jobs_begun) == 1


def test_a_job_of_a_person_keeps_its_entries(world):
    world.file(3, **DEFECT)
    world.begin(JobPlan())
    world.jobs.pause(world.job_id, by="ann")
    world.fixed_after.add("1.2")
    world.later()
    assert [job.created_by for job in world.jobs_begun] == ["ann"]


def test_two_workers_begin_one_job(world):
    world.file(3, **DEFECT)
    world.fixed_after.add("1.2")
    other = world.start_worker()
    world.clock.sleep(LOOK_EVERY)
    world.worker.step()
    other.step()
    assert len(world.jobs_begun) == 1


def test_a_canary_that_fails_in_another_way_keeps_the_others_from_nothing(world):
    world.file(40, **DEFECT)
    world.fixed_after.add("1.2")
    world.later(**DEFECT | {"version": "1.3", "fingerprint": "g2"})
    assert len(world.publisher.sent) == 1
    world.fixed_after.add("1.3")
    world.release = "1.4"
    for _ in range(3):
        world.later()
    assert {entry.status for entry in world.entries} == {Status.RESOLVED}


def test_the_newest_one_at_its_cap_keeps_the_others_from_nothing(world):
    world.file(5, **DEFECT)
    letter = letter_of(
        "e9", fingerprint="g1", message=message_of("e9"), replay=3,
        last_attempt_at=world.clock.now(), **DEFECT,
    )  # fmt: skip
    world.queue.send(letter)
    world.fixed_after.add("1.2")
    world.later()
    assert [(job.handled, job.refused) for job in world.jobs_begun] == [(5, 1)]


def test_each_class_of_a_group_has_its_job(world):
    world.file(3, **DEFECT)
    odd = letter_of("e9", fingerprint="g1", message=message_of("e9"), **DEFECT | {"version": "1.1"})
    world.queue.send(odd)
    world.fixed_after |= {"1.1", "1.2"}
    for _ in range(3):
        world.later()
    assert {entry.status for entry in world.entries} == {Status.RESOLVED}


def held_by(world, entry, hold):
    decision = replace(HOLD, hold=hold, failure_class=entry.failure_class)
    decided = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
    assert world.ledger.decide([decided], by="me") == [True]


@pytest.mark.parametrize("hold", [Hold.PERSON, Hold.JOB, Hold.ANSWER])
def test_what_no_rule_held_is_left_to_people(world, hold):
    world.file(3, **DEFECT)
    for entry in world.entries:
        held_by(world, entry, hold)
    world.fixed_after.add("1.2")
    world.later()
    assert world.jobs_begun == ()


def test_a_persons_job_that_was_cancelled_keeps_recovery_away_for_a_while(world):
    world.file(3, **DEFECT)
    world.begin(JobPlan())
    world.jobs.cancel(world.job_id, by="ann")
    world.fixed_after.add("1.2")
    world.later()
    assert len(world.jobs_begun) == 1
    world.clock.sleep(LEFT_TO_PEOPLE)
    world.later()
    assert len(world.jobs_begun) == 2


def test_what_cannot_be_sent_is_tried_further_and_further_apart():
    assert not may_begin([job(handled=0)], START + FIRST_PAUSE)
    assert pause_after([job(handled=0)] * 3) == 8 * FIRST_PAUSE


def test_a_group_that_cannot_be_begun_stops_no_other(world, caplog):
    world.file(3, **DEFECT)
    other = letter_of("e9", fingerprint="g2", message=message_of("e9"), **DEFECT)
    world.queue.send(other)
    world.worker.step()
    world.fixed_after.add("1.2")
    begin = world.jobs.begin

    def fail_for_one(selection, *arguments, **options):
        if selection.wanted.fingerprint == "g2":
            raise ValueError("odd")
        return begin(selection, *arguments, **options)

    world.jobs.begin = fail_for_one
    world.later()
    assert [job.handled for job in world.jobs_begun] == [3]
    assert "recovery" in caplog.text


def job(status=JobStatus.DONE, failed=0, handled=1, at=START):
    return ReplayJob(
        id="j",
        selection=Selection(),
        plan=JobPlan(),
        status=status,
        failed=failed,
        handled=handled,
        created_by=AUTOMATIC,
        created_at=at,
        ended_at=None if status is JobStatus.HALTED else at,
    )


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_jobs_that_go_wrong_come_further_and_further_apart(went_well):
    before = [job(failed=0 if well else 1) for well in went_well]
    pause = pause_after(before)
    assert FIRST_PAUSE <= pause <= LONGEST_PAUSE
    assert pause_after([*before, job(failed=1)]) >= pause
    assert pause_after([*before, job()]) == FIRST_PAUSE
    almost = START + pause - timedelta(seconds=1)
    assert not may_begin(before, almost)
    assert may_begin(before, almost, "1.3")
    assert may_begin(before, START + pause)


def test_another_follows_one_that_halted_and_none_that_is_under_way():
    much_later = START + 10 * LONGEST_PAUSE
    assert may_begin([job(JobStatus.HALTED, failed=1)], much_later)
    for status in (JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.PROPOSED):
        assert not may_begin([job(status)], much_later, "1.3")
