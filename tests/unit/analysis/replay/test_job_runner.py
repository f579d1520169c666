from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import HOLD, letter_of, message_of
from tests.hand_clock import START
from tests.unit.analysis.worker.test_worker import DEADLINE, PAUSE, Faults, Killed, World

from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.classification.classify import Unattended
from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided, EntryFilter
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.job import (
    AUTOMATIC,
    JOB_LEASE,
    ItemState,
    JobPlan,
    JobStatus,
    Selection,
)
from angzarr.analysis.replay.job_limits import Target
from angzarr.analysis.replay.job_runner import JobRunner
from angzarr.analysis.worker.worker import AnalysisWorker
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.events import headers as names
from angzarr.resilience.breaker import Phase

AT_ONCE = JobPlan(stages=(), rate=None)
GROUP = Selection(wanted=EntryFilter(fingerprint="g1"))


class FaultyJobs(SqlReplayJobs, Faults):
    def __init__(self, ledger, clock) -> None:
        SqlReplayJobs.__init__(self, ledger.database, clock)
        Faults.__init__(self)

    def note(self, *arguments, **options):
        self.check("before note")
        noted = super().note(*arguments, **options)
        self.check("after note")
        return noted


class JobWorld(World):
    """A worker that carries out jobs, and a dependency that is well or ill."""

    def __init__(self) -> None:
        self.phase = None
        self.ramping = False
        self.retry_at = START + timedelta(seconds=30)
        self.braked = self.quiet = ""
        self.engines = 0
        self.unattended = Unattended(oldest=timedelta(days=30))
        super().__init__()

    def start_worker(self, **_options) -> AnalysisWorker:
        if not self.engines:
            self.jobs = FaultyJobs(self.ledger, self.clock)
        self.engines += 1
        runner = JobRunner(
            work=self.jobs,
            replayer=self.replayer,
            target=lambda _handlers: self.breakers_seen(),
            barred=lambda: self.braked,
            barred_by_itself=lambda: self.braked or self.quiet,
            unattended=self.unattended,
            most_replays=5,
            most_by_itself=3,
            engine=f"engine {self.engines}",
            worker=f"analysis@vm:{self.engines}",
        )
        return super().start_worker(owners=self.jobs.owners, more=(runner,))

    def breakers_seen(self):
        if self.phase is None:
            return None
        bank = BreakerSeen(name="bank", phase=self.phase, retry_at=self.retry_at)
        barring = (bank,) if self.phase is Phase.OPEN else ()
        return Target(self.phase, self.ramping, barring)

    def hold(self, count, **fields):
        letters = [
            letter_of(f"e{n}", fingerprint="g1", message=message_of(f"e{n}"), **fields)
            for n in range(count)
        ]
        entries = self.ledger.add_failed_events(letters)
        decided = [Decided(entry_id=e.id, revision=e.revision, decision=HOLD) for e in entries]
        self.ledger.decide(decided, by="me")
        return entries

    def begin(self, plan=AT_ONCE, selection=GROUP, by="ann"):
        self.job_id = self.jobs.begin(selection, plan, by=by).id

    def die(self, verb, *, sent=0, rounds=50):
        """Let the engine die at *verb* once it sent so many, and another one take over."""
        faulty = self.publisher if "publish" in verb else self.jobs
        publish, count = self.publisher.publish, []

        def counted(message):
            count.append(message)
            if len(count) > sent:
                faulty.fail[verb] = Killed()
            publish(message)

        self.publisher.publish = counted
        with pytest.raises(Killed):
            self.run(rounds=rounds)
        self.publisher.publish = publish
        faulty.fail.clear()
        self.restart()
        self.clock.sleep(JOB_LEASE)

    @property
    def job(self):
        return self.jobs.open_job(self.job_id)

    def answer_all(self, *, well=True):
        """Let workers run what was sent and not answered; return how much that was."""
        fresh, self.answered = self.publisher.sent[self.answered :], len(self.publisher.sent)
        for message in fresh:
            if well:
                self.answer(message)
                continue
            event, replay = message.headers[names.EVENT_ID], message.headers[names.REPLAY]
            self.queue.send(letter_of(event, replay=replay, message=message, fingerprint="g1"))
        return len(fresh)

    answered = 0

    def run(self, *, well=True, rounds=50):
        """Step until the job is over, or nothing moves."""
        for _ in range(rounds):
            self.worker.step()
            if not self.answer_all(well=well) and self.job.status is not JobStatus.RUNNING:
                break
        self.worker.step()

    def numbers(self):
        return [(m.headers[names.EVENT_ID], m.headers[names.REPLAY]) for m in self.publisher.sent]


@pytest.fixture
def world():
    return JobWorld()


def test_a_group_is_replayed_in_stages_and_resolved(world):
    world.hold(40)
    world.begin(JobPlan(rate=None))
    sent = []
    for _ in range(4):
        world.worker.step()
        sent.append(world.answer_all())
    world.run()
    assert sent == [1, 4, 20, 15]
    assert (world.job.status, world.job.handled) == (JobStatus.DONE, 40)
    assert {e.status for e in world.ledger.get_failed_events(status=None).entries} == {
        Status.RESOLVED
    }
    canary, *others = [message.headers[names.REPLAYED_BY] for message in world.publisher.sent]
    assert canary == f"job {world.job_id} (ann), canary"
    assert set(others) == {f"job {world.job_id} (ann)"}
    history = world.ledger.open(world.jobs.items(world.job_id)[0].entry_id).history
    assert canary in {line.who for line in history}


def test_a_sick_dependency_halts_the_job_after_its_canary(world):
    world.hold(200)
    world.begin(JobPlan())
    world.run(well=False)
    assert len(world.publisher.sent) == 1
    assert world.job.status is JobStatus.HALTED
    assert "the canary failed" in world.job.said


def test_what_a_job_replayed_and_failed_again_is_held_and_not_replayed_by_itself(world):
    world.hold(3)
    world.begin()
    world.run(well=False)
    world.clock.sleep(timedelta(days=1))
    world.worker.step()
    assert len(world.publisher.sent) == 3
    entries = world.ledger.get_failed_events(status=None).entries
    assert {entry.status for entry in entries} == {Status.HELD}
    assert all(f"left to replay job {world.job_id}" in entry.evidence for entry in entries)
    assert all("transient error" in entry.evidence for entry in entries)


def test_an_entry_that_waits_for_its_own_replay_is_left_to_the_job_that_has_it(world):
    world.queue.send(letter_of(fingerprint="g1"))
    world.worker.step()
    assert world.entry.status is Status.WAITING
    world.begin(selection=Selection(wanted=EntryFilter(fingerprint="g1")))
    world.phase = Phase.OPEN
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert not world.publisher.sent
    world.phase = None
    world.run()
    assert (world.entry.status, world.entry.replays) == (Status.RESOLVED, 1)


@pytest.mark.parametrize(("by", "sent"), [(AUTOMATIC, 2), ("ann", 3)])
def test_no_job_that_began_by_itself_takes_what_needs_a_person(world, by, sent):
    world.unattended = Unattended(
        oldest=timedelta(days=30), vouched=lambda letter: letter.event.id != "e1"
    )
    world.worker = world.start_worker()
    world.hold(3)
    world.begin(by=by)
    world.run()
    assert len(world.publisher.sent) == sent
    refused = [one for one in world.jobs.items(world.job_id) if one.reason]
    assert [one.reason[:26] for one in refused] == ["its signature does not cov"] * (3 - sent)


@pytest.mark.parametrize(("by", "sent"), [(AUTOMATIC, 0), ("ann", 3)])
def test_no_job_that_began_by_itself_takes_what_failed_long_ago(world, by, sent):
    world.hold(3)
    world.clock.sleep(timedelta(days=31))
    world.begin(by=by)
    world.run()
    assert len(world.publisher.sent) == sent


def test_an_open_breaker_stops_the_job_and_it_goes_on_by_itself(world):
    world.hold(3)
    world.begin()
    world.phase = Phase.OPEN
    world.worker.step()
    assert not world.publisher.sent
    assert "breaker bank is open" in world.job.said
    world.phase = Phase.HALF_OPEN
    world.worker.step()
    world.worker.step()
    assert len(world.publisher.sent) == 1
    world.answer_all()
    world.phase = Phase.CLOSED
    world.run()
    assert (world.job.status, world.job.handled, world.job.said) == (JobStatus.DONE, 3, "")
    told = [line.what for line in world.jobs.job_history(world.job_id)]
    assert told == ["running", "waits", "goes on", "done"]


def test_a_jobs_history_says_which_worker_did_it(world):
    world.hold(3)
    world.begin(JobPlan(rate=None))
    world.run(well=False)
    told = [(line.who, line.what) for line in world.jobs.job_history(world.job_id)]
    assert told == [("ann", "running"), ("analysis@vm:1", "halted")]


def test_a_job_that_waits_for_a_breaker_is_written_once_a_probe(world):
    world.hold(3)
    world.begin()
    world.phase = Phase.OPEN
    for _ in range(5):
        world.worker.step()
        world.clock.sleep(timedelta(seconds=1))
    waiting = world.job
    assert waiting.said == "waits: breaker bank is open (next probe at 12:00:30 UTC)"
    assert waiting.revision == 2
    world.retry_at += timedelta(seconds=30)
    world.worker.step()
    assert "12:01:00 UTC" in world.job.said
    told = [(line.who, line.what) for line in world.jobs.job_history(world.job_id)]
    assert told == [("ann", "running"), ("analysis@vm:1", "waits")], "a failed probe is no news"


def test_the_brake_stops_jobs_too_and_they_say_who_pulled_it(world):
    world.hold(3)
    world.begin()
    world.braked = "the brake was pulled by eve"
    world.worker.step()
    assert not world.publisher.sent
    assert world.job.said == "waits: the brake was pulled by eve"
    world.braked = ""
    world.run()
    assert world.job.status is JobStatus.DONE


def test_no_answer_by_the_deadline_counts_as_a_failure(world):
    world.hold(5)
    world.begin(JobPlan(rate=None))
    world.worker.step()
    world.clock.sleep(DEADLINE)
    world.worker.step()
    world.worker.step()
    assert (world.job.status, world.job.unanswered) == (JobStatus.HALTED, 1)


def test_an_entry_that_cannot_be_sent_is_refused_with_the_reason_and_stops_nothing(world):
    world.hold(1, handler="nobody.knows")
    world.ledger.add_failed_event(
        letter_of("odd", fingerprint="g1", message=message_of("odd", task="gone.away"))
    )
    world.begin(JobPlan(rate=None))
    world.run()
    (refused,) = world.jobs.items(world.job_id, (ItemState.REFUSED,))
    assert "no handler is registered as 'gone.away'" in refused.reason
    assert (world.job.status, world.job.handled, world.job.refused) == (JobStatus.DONE, 1, 1)


def test_entries_with_too_many_replays_are_refused(world):
    world.hold(1)
    for _ in range(6):
        world.begin()
        world.run(well=False)
    assert len(world.publisher.sent) == 5
    (refused,) = world.jobs.items(world.job_id)
    assert "replayed 5 times" in refused.reason


def test_a_broker_that_is_away_loses_nothing_and_the_job_says_why(world):
    world.hold(5)
    world.begin()
    world.publisher.fail["publish"] = BrokerUnavailable("the broker is away")
    done = world.worker.step()
    assert "replay jobs" in done.away
    assert world.job.said == "waits: the broker is away"
    world.publisher.fail.clear()
    world.clock.sleep(PAUSE)
    world.run()
    assert (world.job.status, world.job.handled, world.job.said) == (JobStatus.DONE, 5, "")
    assert sorted(world.numbers()) == [(f"e{n}", 1) for n in range(5)]


def test_a_worker_without_memory_refuses_no_entry_of_a_job_and_the_job_says_why(world):
    world.hold(2)
    world.begin()
    world.publisher.fail["publish"] = MemoryError()
    done = world.worker.step()
    assert "replay jobs" in done.away
    assert world.job.said == "waits: MemoryError"
    world.publisher.fail.clear()
    world.clock.sleep(PAUSE)
    world.run()
    assert (world.job.status, world.job.handled, world.job.said) == (JobStatus.DONE, 2, "")


def test_a_payload_store_that_is_away_uses_no_replay_up(world):
    letter = letter_of(fingerprint="g1")
    away = without_body(letter, world.payloads.put(letter.message.body))
    entry = world.ledger.add_failed_event(away)
    world.ledger.decide(
        [Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)], by="me"
    )
    world.begin()
    world.payloads.fail["fetch"] = PayloadStoreUnavailable("the store is away")
    world.worker.step()
    assert world.job.said == "waits: the store is away"
    assert world.entry.replays == 0
    world.payloads.fail.clear()
    world.run()
    assert (world.job.status, world.entry.replays) == (JobStatus.DONE, 1)


@pytest.mark.parametrize("verb", ["publish", "after publish", "before note", "after note"])
@pytest.mark.parametrize("sent_before", [0, 2])
def test_an_engine_that_dies_anywhere_sends_no_entry_under_two_numbers(world, verb, sent_before):
    world.hold(5)
    world.begin(replace(AT_ONCE, in_flight=3))
    world.die(verb, sent=sent_before)
    world.worker.step()
    world.clock.sleep(max(JOB_LEASE, world.replayer.lease))
    world.run()
    assert (world.job.status, world.job.handled) == (JobStatus.DONE, 5)
    assert {number for _, number in world.numbers()} == {1}
    assert {event for event, _ in world.numbers()} == {f"e{n}" for n in range(5)}
    assert len(world.publisher.sent) <= 6


def test_a_paused_job_sends_nothing_more_and_counts_what_is_under_way(world):
    world.hold(5)
    world.begin(replace(AT_ONCE, in_flight=2))
    world.worker.step()
    world.jobs.pause(world.job_id, by="ann")
    world.run()
    assert (world.job.status, world.job.handled, world.job.sent) == (JobStatus.PAUSED, 2, 2)
    world.jobs.resume(world.job_id, by="ann")
    world.run()
    assert (world.job.status, world.job.handled) == (JobStatus.DONE, 5)


def test_a_turn_sends_for_half_its_lease_at_most(world):
    world.hold(5)
    world.begin()
    publish = world.publisher.publish

    def slow(message):
        world.clock.sleep(JOB_LEASE / 4)
        publish(message)

    world.publisher.publish = slow
    world.worker.step()
    assert len(world.publisher.sent) == 3
    world.run()
    assert (world.job.status, world.job.handled) == (JobStatus.DONE, 5)


def brake(world):
    world.braked = "the brake was pulled by eve"


def open_breaker(world):
    world.phase = Phase.OPEN


def pause(world):
    world.jobs.pause(world.job_id, by="ann")


@pytest.mark.parametrize("stop", [brake, open_breaker, pause])
def test_what_a_dead_engine_sent_is_counted_even_while_nothing_may_be_sent(world, stop):
    world.hold(5)
    world.begin()
    world.die("before note", sent=4, rounds=1)
    stop(world)
    world.worker.step()
    assert (world.job.sent, len(world.publisher.sent)) == (5, 5)
    world.answer_all(well=False)
    world.worker.step()
    world.worker.step()
    assert (world.job.failed, world.job.left) == (5, 0)
    assert len(world.publisher.sent) == 5


@pytest.mark.parametrize("stop", [brake, open_breaker, pause])
def test_what_a_dead_engine_left_is_not_sent_into_a_stop(world, stop):
    world.hold(5)
    world.begin()
    world.die("publish", sent=2)
    stop(world)
    before = len(world.publisher.sent)
    for _ in range(3):
        world.worker.step()
    assert len(world.publisher.sent) == before == 2
    assert (world.job.sent, world.job.left) == (3, 2)
    assert world.job.said


def test_what_a_dead_engine_left_keeps_to_the_room_of_now(world):
    world.hold(5)
    world.begin()
    world.die("publish", sent=0)
    world.clock.sleep(world.replayer.lease)
    world.phase = Phase.HALF_OPEN
    world.worker.step()
    assert len(world.publisher.sent) == 1
    while world.answer_all():
        sent = len(world.publisher.sent)
        world.worker.step()
        assert len(world.publisher.sent) <= sent + 1
    assert (world.job.status, world.job.handled) == (JobStatus.DONE, 5)


def test_few_replays_are_in_flight_while_a_breaker_ramps_up(world):
    world.hold(40)
    world.begin(replace(AT_ONCE, in_flight=30))
    world.phase, world.ramping = Phase.CLOSED, True
    world.worker.step()
    assert len(world.publisher.sent) == 3
    world.ramping = False
    world.worker.step()
    assert len(world.publisher.sent) == 30


@pytest.mark.parametrize(("by", "sent"), [("ann", 3), (AUTOMATIC, 0)])
def test_a_job_that_began_by_itself_keeps_quiet_hours_and_a_persons_does_not(world, by, sent):
    world.hold(3)
    world.begin(by=by)
    world.quiet = "quiet hours until 06:00"
    world.worker.step()
    assert len(world.publisher.sent) == sent
    assert world.job.said == ("" if sent else "waits: quiet hours until 06:00")
    world.quiet = ""
    world.run()
    assert world.job.status is JobStatus.DONE


def changing(world, times):
    """Let somebody change an entry each time that the engine is about to begin its replay."""
    begin, left = world.ledger.mark_retrying, list(range(times))

    def changed(entry_id, replay, **options):
        if left:
            left.pop()
            return None
        return begin(entry_id, replay, **options)

    world.ledger.mark_retrying = changed


@pytest.mark.parametrize("times", [1, 4])
def test_an_entry_that_was_changed_meanwhile_is_looked_at_again(world, times):
    world.hold(1)
    world.begin()
    changing(world, times)
    world.run()
    assert (world.job.status, world.job.handled, world.job.refused) == (JobStatus.DONE, 1, 0)


def test_an_entry_that_changes_all_the_time_holds_no_turn_up(world):
    world.hold(1)
    world.begin()
    changing(world, 1000)
    world.worker.step()
    (item,) = world.jobs.items(world.job_id)
    assert (item.state, world.job.left, world.job.sent) == (ItemState.CHOSEN, 1, 0)


def test_an_entry_that_another_engine_begins_first_is_sent(world):
    world.hold(1)
    world.begin()
    begin = world.ledger.mark_retrying

    def beaten(entry_id, replay, **options):
        begin(entry_id, replay, **options)
        return begin(entry_id, replay, **options)

    world.ledger.mark_retrying = beaten
    world.worker.step()
    (item,) = world.jobs.items(world.job_id)
    assert (item.state, world.job.refused) == (ItemState.SENT, 0)


def test_an_edit_that_got_no_answer_is_what_a_job_sends(world):
    (entry,) = world.hold(1)
    edited = replace(letter_of("e0"), message=replace(message_of("e0"), body=b"[[4], {}, {}]"))
    order = ReplayOrder(letter=edited, before=letter_of("e0"), said="/total: 3 → 4")
    found = world.ledger.open(entry.id)
    world.replayer.replay(found.entry, found.failure, by="ann", order=order)
    world.clock.sleep(DEADLINE)
    world.worker.step()
    for _ in range(2):
        world.begin()
        world.worker.step()
        assert world.publisher.sent[-1].body == edited.message.body
        world.clock.sleep(DEADLINE)
        world.worker.step()
        world.worker.step()
        said = [line.detail for line in world.ledger.open(entry.id).history]
        assert any(one.endswith("edited: as before: /total: 3 → 4") for one in said)
    assert len(world.publisher.sent) == 3
