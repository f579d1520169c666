from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, message_of, unreadable_message
from tests.hand_clock import HandClock, seldom_by
from tests.judging import classifier
from tests.unit.cli.ledger_app import FakeCompensations

from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.transition import UNDECIDED
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.analysis.replay.skip import Skips
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.due_entries import MOST_REFUSED, MOST_TRIES, DueEntries
from angzarr.analysis.worker.intake import BATCH, Intake, ReplayResults
from angzarr.analysis.worker.worker import AnalysisWorker, Outages
from angzarr.dead_letters.codec import decode, read_receipt
from angzarr.dead_letters.letter import ORDERED_HANDLER, UNDATED
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.queue import Receipt
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import (
    BrokerUnavailable,
    DeadLetterQueueUnavailable,
    DecodeError,
    LedgerUnavailable,
    PayloadStoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from memory_payloads import MemoryPayloadStore
from sqlite_ledger import SqliteLedger

PAUSE = timedelta(seconds=30)
LEASE = timedelta(seconds=30)
DEADLINE = timedelta(hours=1)


class Killed(BaseException):
    """The process dies here."""


class Faults:
    """Lets a fake's verb fail: `fail["verb"] = error` raises it until it is taken away."""

    def __init__(self) -> None:
        self.fail: dict[str, BaseException] = {}

    def check(self, verb: str) -> None:
        if verb in self.fail:
            raise self.fail[verb]


class FakeQueue(Faults):
    """Letters wait until they are done; `receive` gives what nobody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Receipt] = []
        self.held: list[Receipt] = []

    def send(self, letter, raw=b"raw", problem=""):
        self.waiting.append(
            Receipt(
                domain="order",
                letter=letter,
                raw=raw,
                content_type="application/json",
                problem=problem,
                handle=object(),
            )
        )

    def receive(self, domains, *, limit, wait):
        self.check("receive")
        assert list(domains) == ["order"]
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.held += taken
        return taken

    def done(self, receipts):
        self.check("done")
        self.held = [one for one in self.held if one not in receipts]

    def give_back(self):
        """What the broker does when a worker dies."""
        self.waiting, self.held = self.held + self.waiting, []


class FakeOutcomes(Faults):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[ReplayOutcome] = []
        self.let_go: list[ReplayOutcome] = []

    def receive(self, *, limit, wait):
        self.check("receive")
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def done(self, outcomes):
        self.check("done")
        self.let_go += outcomes


class FakePublisher(Faults):
    def __init__(self) -> None:
        super().__init__()
        self.sent = []

    def publish(self, message):
        self.check("publish")
        self.sent.append(message)
        self.check("after publish")


class FaultyStore(MemoryPayloadStore, Faults):
    def __init__(self, clock) -> None:
        MemoryPayloadStore.__init__(self, clock)
        Faults.__init__(self)
        self.fetches = 0

    def fetch(self, reference):
        self.fetches += 1
        self.check("fetch")
        return super().fetch(reference)


class FaultyLedger(SqliteLedger, Faults):
    def __init__(self, clock) -> None:
        SqliteLedger.__init__(self, clock)
        Faults.__init__(self)

    def add_failed_events(self, failures, *, decide=None, by=""):
        self.check("add")
        poisoned = [f for f in failures if "poisonous" in getattr(f, "error_message", "")]
        if poisoned:
            raise ValueError("cannot be stored")
        return super().add_failed_events(failures, decide=self.deciding(decide), by=by)

    def deciding(self, decide):
        def checked(undecided):
            self.check("decide")
            return decide(undecided)

        return decide and checked

    def decide(self, decisions, *, by):
        self.check("decide")
        return super().decide(decisions, by=by)

    def mark_published(self, *arguments, **options):
        self.check("published")
        return super().mark_published(*arguments, **options)


class World:
    """A worker among its fakes."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.queue = FakeQueue()
        self.outcomes = FakeOutcomes()
        self.publisher = FakePublisher()
        self.ledger = FaultyLedger(self.clock)
        self.tasks = {"orders.sync"}
        self.payloads = FaultyStore(self.clock)
        self.replayer = Replayer(
            ledger=self.ledger,
            publisher=self.publisher,
            targets=ReplayTargets(tasks=self.tasks, queues={"orders"}),
            clock=self.clock,
            lease=LEASE,
            answer_deadline=DEADLINE,
            payloads=self.payloads,
        )
        self.barred = ""
        self.broken = None
        self.asleep = ()
        self.compensations = FakeCompensations()
        self.look = None
        self.rules = ()
        self.worker = self.start_worker()

    def start_worker(self, *, batch: int = BATCH, more=(), **deciding_by) -> AnalysisWorker:
        """Start a worker that knows nothing but the ledger."""
        replayer = self.replayer
        deciding = DecisionMaker(
            ledger=self.ledger,
            gathering=EvidenceCollector(
                peers=SqlPeers(self.ledger.database),
                obstacle=self.obstacle,
                clock=self.clock,
                breakers=self.look,
                undone_by=self.compensations.of,
            ),
            classify=classifier(self.rules, longest_delay=PAUSE),
            name="analysis@here",
            **deciding_by,
        )
        return AnalysisWorker(
            duties=(
                Intake(
                    queue=self.queue,
                    deciding=deciding,
                    clock=self.clock,
                    domains=["order"],
                    batch=batch,
                    seldom=seldom_by(self.clock),
                ),
                ReplayResults(outcomes=self.outcomes, ledger=self.ledger),
                DueEntries(
                    ledger=self.ledger,
                    deciding=deciding,
                    replayer=replayer,
                    compensator=Compensator(
                        ledger=self.ledger, replayer=replayer, compensations=self.compensations
                    ),
                    skips=Skips(replayer=replayer),
                    batch=batch,
                    asleep=lambda: {Status.WAITING} if self.barred else self.asleep,
                    refuses=lambda error: "too large" in str(error),
                ),
                *more,
            ),
            outages=Outages(seldom=seldom_by(self.clock)),
            name="analysis@here",
            chance=lambda: 0.5,
        )

    def obstacle(self, failure):
        if self.broken:
            raise self.broken
        return self.replayer.obstacle(failure)

    def restart(self) -> None:
        self.queue.give_back()
        self.worker = self.start_worker()

    @property
    def entry(self):
        (entry,) = self.ledger.get_failed_events(status=None).entries
        return entry

    def answer(self, message, outcome="handled"):
        self.outcomes.waiting.append(
            ReplayOutcome(
                letter_id=message.headers[names.LETTER_ID],
                replay=message.headers[names.REPLAY],
                outcome=outcome,
                handler="orders.sync",
                event_id="e1",
            )
        )

    def replay_once(self):
        """File a letter and let its first replay go out; return the message."""
        self.queue.send(letter_of())
        self.worker.step()
        self.clock.sleep(PAUSE)
        self.worker.step()
        return self.publisher.sent[-1]


@pytest.fixture
def world():
    return World()


# -- the loop --------------------------------------------------------------------------------


def test_letter_is_filed_replayed_and_resolved(world):
    world.queue.send(letter_of())
    assert world.worker.step().done["letters"] == 1
    assert world.entry.status is Status.WAITING
    assert not world.queue.held
    assert not world.publisher.sent

    world.clock.sleep(PAUSE)
    assert world.worker.step().done["due entries"] == 1
    (message,) = world.publisher.sent
    assert (message.queue, message.headers[names.REPLAY]) == ("orders", 1)
    assert world.entry.status is Status.RETRYING

    world.answer(message)
    assert world.worker.step().done["answers"] == 1
    assert (world.entry.status, world.entry.resolved_by) == (
        Status.RESOLVED,
        "replay 1 (handled)",
    )
    assert [line.what for line in world.ledger.open(world.entry.id).history] == [
        "failed", "waiting", "retrying", "published", "resolved",
    ]  # fmt: skip


def test_event_that_keeps_failing_is_held_at_the_cap_in_one_entry(world):
    world.queue.send(letter_of())
    for replay in (1, 2, 3):
        world.worker.step()
        world.clock.sleep(PAUSE)
        world.worker.step()
        message = world.publisher.sent[-1]
        assert message.headers[names.REPLAY] == replay
        world.queue.send(letter_of(replay=replay, message=message))
        world.answer(message, "dead_lettered")
    world.worker.step()
    world.clock.sleep(timedelta(days=1))
    world.worker.step()
    assert len(world.publisher.sent) == 3
    assert (world.entry.status, world.entry.occurrences) == (Status.HELD, 4)
    assert "3 of 3 replays used" in world.entry.evidence


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("handled", Status.RESOLVED),
        ("duplicate", Status.RESOLVED),
        ("skipped", Status.SKIPPED),
        ("dead_lettered", Status.RETRYING),
        ("of the future", Status.RETRYING),
    ],
)
def test_outcome_ends_the_replay_as_it_says(world, outcome, status):
    world.answer(world.replay_once(), outcome)
    world.worker.step()
    assert world.entry.status is status
    assert len(world.outcomes.let_go) == 1


def test_stale_and_unknown_outcomes_change_nothing(world):
    message = world.replay_once()
    world.queue.send(letter_of(replay=1, message=message))
    world.worker.step()
    before = world.entry
    world.answer(message)
    world.answer(replace(message, headers={**message.headers, names.LETTER_ID: "nobody's"}))
    world.worker.step()
    assert world.entry == before
    assert len(world.outcomes.let_go) == 2


def test_no_answer_by_the_deadline_is_held_and_a_late_one_still_counts(world):
    message = world.replay_once()
    world.clock.sleep(DEADLINE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert "no answer to replay 1" in world.entry.evidence
    world.answer(message)
    world.worker.step()
    assert world.entry.status is Status.RESOLVED


def test_same_letter_many_times_is_one_entry_and_one_replay(world):
    for _ in range(3):
        world.queue.send(letter_of())
    world.worker.step()
    world.queue.send(letter_of())
    world.clock.sleep(PAUSE)
    world.worker.step()
    world.worker.step()
    assert len(world.publisher.sent) == 1
    assert world.entry.occurrences == 1


def test_unreadable_letter_is_archived_with_its_bytes(world):
    world.queue.send(None, raw=b"\xff{", problem="not a letter")
    world.worker.step()
    assert world.entry.status is Status.ARCHIVED
    assert world.entry.failure_class is FailureClass.DATA_CORRUPTION
    assert world.ledger.open(world.entry.id).failure.raw == b"\xff{"
    assert not world.queue.held


def test_json_of_another_program_is_archived_whole_and_its_evidence_says_what_it_is(world):
    raw = b'{"order_id": "o-777", "customer": "ann"}'
    receipt = read_receipt("order", raw, "application/json", None)
    world.queue.send(receipt.letter, raw=raw, problem=receipt.problem)
    world.worker.step()
    assert (world.entry.status, world.entry.reason) == (Status.ARCHIVED, "unreadable")
    assert world.entry.failure_class is FailureClass.DATA_CORRUPTION
    assert "it is not a letter of angzarr" in world.entry.evidence
    assert world.ledger.open(world.entry.id).failure.raw == raw
    assert not world.queue.held


def test_letter_without_a_domain_is_found_under_that_of_its_queue(world):
    world.queue.send(letter_of(domain=""))
    world.worker.step()
    assert world.entry.domain == "order"


def test_unreadable_message_is_archived_and_never_replayed(world):
    world.queue.send(unreadable_message())
    world.worker.step()
    world.clock.sleep(timedelta(days=1))
    world.worker.step()
    assert world.entry.status is Status.ARCHIVED
    assert not world.publisher.sent


def test_what_holds_up_the_events_behind_it_is_held_where_it_would_be_archived(world):
    world.queue.send(replace(unreadable_message(), component_type=ORDERED_HANDLER))
    world.worker.step()
    world.clock.sleep(timedelta(days=1))
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert world.entry.evidence.endswith("wait behind it: replay it, or skip it")
    assert not world.publisher.sent


def test_what_cannot_be_replayed_is_held_with_the_advice_that_helps(world):
    world.tasks.clear()
    world.queue.send(replace(unreadable_message(), component_type=ORDERED_HANDLER))
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert world.entry.evidence.endswith("wait behind it: skip it")


def test_a_letter_of_others_holds_nothing_up_here_whatever_its_component_is(world):
    wire = AngzarrDeadLetter(rejection_reason="gone mad", source_component_type="projector")
    wire.cover.domain = "order"
    wire.metadata["reason"] = "poison"
    wire.rejected_events.pages.add().event.type_url = "type.googleapis.com/shop.Placed"
    world.queue.send(decode(wire.SerializeToString()))
    world.worker.step()
    assert world.entry.status is Status.ARCHIVED
    assert "skip it" not in world.entry.evidence


def test_target_that_is_gone_when_the_replay_is_due_holds_the_entry(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.tasks.clear()
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert "no handler is registered as 'orders.sync'" in world.entry.evidence
    assert not world.publisher.sent


# -- crashes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["publish", "after publish"])
def test_crash_between_commit_and_confirmation_publishes_the_same_number_again(world, verb):
    world.queue.send(letter_of())
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.publisher.fail[verb] = Killed()
    with pytest.raises(Killed):
        world.worker.step()
    assert world.entry.status is Status.RETRYING
    world.publisher.fail.clear()
    world.restart()
    world.worker.step()
    sent_before_the_lease_ended = len(world.publisher.sent)
    world.clock.sleep(LEASE)
    world.worker.step()
    assert len(world.publisher.sent) == sent_before_the_lease_ended + 1
    assert {m.headers[names.REPLAY] for m in world.publisher.sent} == {1}
    assert all(message == world.publisher.sent[0] for message in world.publisher.sent)
    assert world.entry.published_at is not None


@pytest.mark.parametrize("verb", ["add", "decide"])
def test_crash_while_filing_gives_the_letter_to_the_next_worker(world, verb):
    world.queue.send(letter_of())
    world.ledger.fail[verb] = Killed()
    with pytest.raises(Killed):
        world.worker.step()
    world.ledger.fail.clear()
    world.restart()
    world.worker.step()
    assert (world.entry.status, world.entry.occurrences) == (Status.WAITING, 1)
    assert not world.queue.held


def test_stores_that_answer_nonsense_keep_no_letter_from_the_ledger(world, caplog):
    def nonsense():
        raise ValueError("WRONGTYPE")

    intake = world.worker.duties[0]
    asked = intake.deciding.gathering
    intake.deciding = replace(intake.deciding, gathering=replace(asked, releases=nonsense))
    world.queue.send(letter_of())
    world.worker.step()
    assert "WRONGTYPE" in caplog.text
    assert (world.entry.status, world.queue.held) == (Status.FAILED, [])


def test_an_entry_that_cannot_be_read_stops_no_other(world):
    for number in range(3):
        world.queue.send(letter_of(f"e{number}"))
    world.worker.step()
    world.clock.sleep(PAUSE)
    bad = world.ledger.get_failed_events(status=None).entries[1].id
    open_all = world.ledger.open_all

    def damaged(entry_ids):
        if bad in entry_ids:
            raise DecodeError("its order cannot be read")
        return open_all(entry_ids)

    world.ledger.open_all = damaged
    world.worker.step()
    assert len(world.publisher.sent) == 2
    world.ledger.open_all = open_all
    held = world.ledger.get_failed_events(status=Status.HELD).entries
    assert [entry.id for entry in held] == [bad]
    assert "cannot be read" in held[0].evidence


def test_what_nobody_can_decide_is_filed_and_looked_at_again(world, caplog):
    world.queue.send(letter_of())
    world.broken = ValueError("a fault of ours")
    world.worker.step()
    assert "a fault of ours" in caplog.text
    assert (world.entry.status, world.queue.held) == (Status.FAILED, [])
    world.broken = None
    world.clock.sleep(UNDECIDED)
    world.worker.step()
    assert world.entry.status is Status.WAITING


def test_crash_before_done_repeats_nothing_visible(world):
    world.queue.send(letter_of())
    world.queue.fail["done"] = Killed()
    with pytest.raises(Killed):
        world.worker.step()
    before = world.entry
    world.queue.fail.clear()
    world.restart()
    world.worker.step()
    assert world.entry == before
    assert len(world.ledger.open(before.id).history) == 2


# -- dependencies away -----------------------------------------------------------------------


def test_ledger_away_keeps_the_letter_in_hand_and_asks_for_no_more(world):
    world.queue.send(letter_of())
    world.ledger.fail["add"] = LedgerUnavailable("away")
    assert "letters" in world.worker.step().away
    world.queue.send(letter_of("e2"))
    world.worker.step()
    assert (len(world.queue.held), len(world.queue.waiting)) == (1, 1)
    world.ledger.fail.clear()
    world.worker.step()
    world.worker.step()
    assert len(world.ledger.get_failed_events(status=None).entries) == 2
    assert not world.queue.held


def test_dead_letter_queue_away_does_not_stop_replays_and_answers(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.queue.fail["receive"] = DeadLetterQueueUnavailable("away")
    world.clock.sleep(PAUSE)
    done = world.worker.step()
    assert (done.away, done.done["due entries"]) == (["letters"], 1)
    world.answer(world.publisher.sent[0])
    world.worker.step()
    assert world.entry.status is Status.RESOLVED


def test_broker_away_sends_the_replay_later_under_the_same_number(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    assert world.worker.step().away == ["due entries"]
    world.publisher.fail.clear()
    world.clock.sleep(LEASE)
    world.worker.step()
    (message,) = world.publisher.sent
    assert message.headers[names.REPLAY] == 1


def test_outcome_is_let_go_only_after_the_ledger_has_it(world):
    world.answer(world.replay_once())
    find, world.ledger.find_by_letters = world.ledger.find_by_letters, None
    world.worker.step()
    assert not world.outcomes.let_go
    world.ledger.find_by_letters = find
    world.worker.step()
    assert len(world.outcomes.let_go) == 1
    assert world.entry.status is Status.RESOLVED


def test_letter_that_cannot_be_stored_does_not_stop_the_others(world):
    world.queue.send(letter_of("bad", error_message="poisonous"), raw=b"its bytes")
    world.queue.send(letter_of())
    world.worker.step()
    entries = {e.event_id: e for e in world.ledger.get_failed_events(status=None).entries}
    assert entries["e1"].status is Status.WAITING
    assert world.ledger.open(entries[""].id).failure.raw == b"its bytes"
    assert not world.queue.held


def test_letter_about_which_nothing_can_be_decided_is_filed_as_what_it_is(world):
    """What is made of a letter that can be read must not turn it into one that cannot."""
    world.ledger.deciding = lambda decide: decide and (lambda _undecided: [object()])
    world.queue.send(letter_of(), raw=b"its bytes")
    world.worker.step()
    assert (world.entry.status, world.entry.event_id) == (Status.FAILED, "e1")
    assert not world.queue.held
    del world.ledger.deciding
    world.clock.sleep(UNDECIDED)
    world.worker.step()
    assert world.entry.status is Status.WAITING


def test_message_that_cannot_be_published_is_held_and_does_not_stop_the_others(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.publisher.fail["publish"] = ValueError("too large")
    world.worker.step()
    world.clock.sleep(LEASE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert "too large" in world.entry.evidence


@pytest.mark.parametrize("fault", [MemoryError(), OSError(24, "Too many open files")], ids=repr)
def test_an_entry_that_there_is_no_room_for_waits_and_does_not_stop_the_others(world, fault):
    for one in ("big", "small"):
        world.queue.send(letter_of(one))
    world.worker.step()
    world.clock.sleep(PAUSE)
    short = [fault]

    def publish(message):
        if message.id == "task-big" and short:
            raise DecodeError("its message cannot be read") from short[0]
        world.publisher.sent.append(message)

    world.publisher.publish = publish
    assert world.worker.step().away == ["due entries"]
    assert {message.id for message in world.publisher.sent} == {"task-small"}
    assert not world.ledger.get_failed_events(status=Status.HELD).entries
    short.clear()
    world.clock.sleep(LEASE)
    world.worker.step()
    assert {message.id for message in world.publisher.sent} == {"task-small", "task-big"}


def test_replay_that_the_broker_refuses_does_not_hold_up_the_others(world):
    def publish(message):
        if message.id.startswith("task-refused"):
            raise BrokerUnavailable("frame too large")
        world.publisher.sent.append(message)

    world.publisher.publish = publish
    ids = [*(f"refused-{n}" for n in range(MOST_REFUSED)), "good-1", "good-2"]
    for one in ids:
        world.queue.send(letter_of(one))
    world.worker.step()
    for _ in range(2):
        world.clock.sleep(PAUSE)
        assert world.worker.step().away == ["due entries"]
    assert {message.id for message in world.publisher.sent} == {"task-good-1", "task-good-2"}


def test_a_message_that_the_broker_refuses_for_ever_is_held_with_the_cause(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.publisher.fail["publish"] = BrokerUnavailable("the message is too large")
    for _ in range(MOST_TRIES):
        assert world.entry.status is not Status.HELD
        world.clock.sleep(PAUSE)
        world.worker.step()
    assert world.entry.status is Status.HELD
    assert "refused its message 5 times: the message is too large" in world.entry.evidence


def test_a_broker_that_is_away_is_waited_for_however_long(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    for _ in range(3 * MOST_TRIES):
        world.clock.sleep(PAUSE)
        world.worker.step()
    assert world.entry.status is Status.RETRYING


def test_what_stays_away_is_logged_once_a_minute(world, caplog):
    caplog.set_level(logging.ERROR, "angzarr.analysis")
    world.queue.fail["receive"] = DeadLetterQueueUnavailable("away")
    for _ in range(5):
        world.worker.step()
    assert len(caplog.records) == 1
    world.clock.sleep(timedelta(minutes=1))
    world.worker.step()
    assert len(caplog.records) == 2


# -- payloads --------------------------------------------------------------------------------


def offloaded(world, event_id="e1", **fields):
    fields.setdefault("message", message_of(event_id))
    letter = letter_of(event_id, **fields)
    return without_body(letter, world.payloads.put(letter.message.body))


def test_a_replay_carries_the_body_that_its_letter_left_in_the_store(world):
    letter = offloaded(world)
    world.queue.send(letter)
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.worker.step()
    (message,) = world.publisher.sent
    assert message.body == message_of().body
    assert (message.id, message.headers[names.REPLAY]) == ("task-e1", 1)
    assert world.ledger.open(world.entry.id).failure == letter
    world.answer(message)
    world.worker.step()
    assert world.entry.status is Status.RESOLVED


def test_a_payload_store_that_is_away_delays_the_replay_and_uses_none(world):
    world.queue.send(offloaded(world))
    world.worker.step()
    world.payloads.fail["fetch"] = PayloadStoreUnavailable("the store is away")
    for _ in range(3):
        world.clock.sleep(PAUSE)
        assert world.worker.step().away == ["due entries"]
        assert (world.entry.status, world.entry.replays) == (Status.WAITING, 0)
    world.payloads.fail.clear()
    world.clock.sleep(LEASE)
    world.worker.step()
    assert len(world.publisher.sent) == 1
    assert (world.entry.status, world.entry.replays) == (Status.RETRYING, 1)


def test_a_payload_store_that_is_away_is_asked_once_a_round_and_holds_up_no_other_replay(world):
    for number in range(2 * MOST_REFUSED):
        world.queue.send(offloaded(world, f"o{number}"))
    world.queue.send(letter_of("e9", message=message_of("e9")))
    world.worker.step()
    world.payloads.fail["fetch"] = PayloadStoreUnavailable("the store is away")
    world.clock.sleep(PAUSE)
    assert world.worker.step().away == ["due entries"]
    assert [message.id for message in world.publisher.sent] == ["task-e9"]
    assert world.payloads.fetches == 1
    world.payloads.fail.clear()
    world.clock.sleep(LEASE)
    world.worker.step()
    assert len(world.publisher.sent) == 1 + 2 * MOST_REFUSED


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda payloads: payloads.clear(), "is gone"),
        (lambda payloads: payloads.update(dict.fromkeys(payloads, b"else")), "is corrupt"),
    ],
    ids=["gone", "corrupt"],
)
def test_a_body_that_can_never_be_had_is_held_with_the_reason_and_uses_no_replay(
    world, damage, said
):
    world.queue.send(offloaded(world))
    world.worker.step()
    damage(world.payloads.payloads)
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert not world.publisher.sent
    assert (world.entry.status, world.entry.replays) == (Status.HELD, 0)
    assert said in world.entry.evidence
    assert "memory:" in world.entry.evidence


def test_a_body_that_is_lost_after_the_replay_was_begun_is_held_too(world):
    world.queue.send(offloaded(world))
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    world.worker.step()
    assert world.entry.status is Status.RETRYING
    world.publisher.fail.clear()
    world.payloads.payloads.clear()
    world.clock.sleep(LEASE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert "is gone" in world.entry.evidence


def test_an_app_without_a_payload_store_holds_the_letter_and_says_what_to_set(world):
    world.queue.send(offloaded(world))
    world.replayer = replace(world.replayer, payloads=None)
    world.worker = world.start_worker()
    world.worker.step()
    assert (world.entry.status, world.entry.failure_class) == (
        Status.HELD,
        FailureClass.CONFIGURATION_ERROR,
    )
    assert "this app has no dlq.payloads.url: set it" in world.entry.evidence


def test_two_messages_nobody_could_read_have_two_entries_though_their_bodies_are_elsewhere(world):
    for body in (b"\xff", b"\xfe"):
        letter = unreadable_message()
        reference = world.payloads.put(body)
        world.queue.send(without_body(letter, reference))
        world.queue.send(without_body(letter, reference))
    world.worker.step()
    entries = world.ledger.get_failed_events(status=None).entries
    assert [entry.occurrences for entry in entries] == [1, 1]


# -- letters of others -----------------------------------------------------------------------


def test_a_letter_that_does_not_say_when_it_was_written_is_dated_when_it_came(world):
    world.queue.send(letter_of(sent_to_dlq_at=UNDATED, first_attempt_at=None, last_attempt_at=None))
    received = world.clock.now()
    world.worker.step()
    assert (world.entry.first_failed_at, world.entry.last_failed_at) == (received, received)
    assert world.ledger.open(world.entry.id).failure.sent_to_dlq_at == received


# -- the brake -------------------------------------------------------------------------------


def test_while_barred_nothing_is_replayed_by_itself_and_all_else_goes_on(world):
    world.queue.send(letter_of("e1"))
    world.worker.step()
    world.barred = "quiet hours until 06:00"
    world.clock.sleep(PAUSE)
    world.queue.send(letter_of("e2", message=message_of("e2")))
    done = world.worker.step()
    assert (done.done["letters"], world.publisher.sent) == (1, [])
    world.barred = ""
    world.worker.step()
    assert len(world.publisher.sent) == 1


def test_while_nothing_is_sent_at_all_a_replay_that_has_begun_waits_too(world):
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    world.queue.send(letter_of())
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert world.entry.status is Status.RETRYING
    world.publisher.fail.clear()
    world.asleep = {Status.WAITING, Status.RETRYING, Status.COMPENSATED}
    world.clock.sleep(LEASE)
    world.worker.step()
    assert world.publisher.sent == []
    world.asleep = ()
    world.worker.step()
    assert len(world.publisher.sent) == 1


# -- run -------------------------------------------------------------------------------------


class StopAfter:
    """Stops after so many pauses, and remembers how long they were."""

    def __init__(self, pauses: int) -> None:
        self.left, self.waits = pauses, []

    def is_set(self):
        return self.left <= 0

    def wait(self, timeout=None):
        self.left -= 1
        self.waits.append(timeout)
        return self.is_set()


def test_run_works_until_it_is_told_to_stop(world):
    world.queue.send(letter_of())
    world.worker.run(StopAfter(1))
    assert world.entry.status is Status.WAITING


def test_run_waits_longer_and_longer_for_what_is_away(world):
    world.queue.fail["receive"] = DeadLetterQueueUnavailable("away")
    stop = StopAfter(10)
    world.worker.run(stop)
    assert stop.waits == sorted(stop.waits)
    assert stop.waits[0] == pytest.approx(0.2)
    assert stop.waits[-1] == pytest.approx(10)


def test_two_workers_share_the_work_without_repeating_it(world):
    world.worker, other = world.start_worker(batch=2), world.start_worker(batch=2)
    for number in range(6):
        world.queue.send(letter_of(f"e{number}", message=message_of(f"e{number}")))
    for _ in range(3):
        world.worker.step()
        other.step()
    world.clock.sleep(PAUSE)
    for _ in range(3):
        world.worker.step()
        other.step()
    assert sorted(message.id for message in world.publisher.sent) == [
        f"task-e{number}" for number in range(6)
    ]


def test_answers_to_letters_of_nobody_are_one_short_line_a_minute(caplog):
    class Outcomes:
        def receive(self, *, limit, wait):
            return [
                ReplayOutcome(letter_id="\x1b[2J\n" * 9_000, outcome="handled", handler="h",
                              event_id=f"e{number}", replay=1)
                for number in range(50)
            ]  # fmt: skip

        def done(self, outcomes):
            pass

    answers = ReplayResults(outcomes=Outcomes(), ledger=SqliteLedger())
    for _ in range(3):
        answers.turn(timedelta(0))
    (line,) = [one.getMessage() for one in caplog.records if "unknown" in one.msg]
    assert len(line) < 400
    assert line.isprintable()


class Failing:
    """A duty that raises what it is told to."""

    def __init__(self, name):
        self.name = name
        self.error = None

    def turn(self, wait):
        if self.error:
            raise self.error
        return 0


class Place:
    def __init__(self, caplog):
        self.clock = HandClock()
        self.duties = [Failing(name) for name in ("letters", "answers", "recovery")]
        self.worker = AnalysisWorker(
            duties=self.duties,
            name="analysis@here",
            chance=lambda: 0.5,
            outages=Outages(seldom=seldom_by(self.clock)),
        )
        self._caplog = caplog

    def lines(self, **errors):
        """Do one round in which duties fail with *errors*, and return what was said."""
        self._caplog.clear()
        for duty in self.duties:
            duty.error = errors.get(duty.name)
        self.worker.step()
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def place(caplog):
    with caplog.at_level(logging.INFO):
        yield Place(caplog)


def away(text="no database"):
    return LedgerUnavailable(text)


def all_away(text="no database"):
    return {name: away(text) for name in ("letters", "answers", "recovery")}


def test_one_cause_is_one_line_that_names_all_that_wait(place):
    assert place.lines(**all_away()) == [
        "work_waits: letters, answers, recovery wait, nothing is lost, trying again: no database"
    ]
    assert place.lines(**all_away()) == []


def test_a_cause_is_said_again_after_a_minute(place):
    place.lines(**all_away())
    place.clock.sleep(timedelta(minutes=1))
    assert len(place.lines(**all_away())) == 1


def test_another_cause_is_said_at_once_and_nothing_is_over_meanwhile(place):
    place.lines(**all_away())
    (line,) = place.lines(**all_away("the password is wrong"))
    assert line.endswith("the password is wrong")


def test_two_causes_are_two_lines(place):
    lines = place.lines(letters=away("no queue"), answers=away(), recovery=away())
    assert [line.split(" wait,")[0] for line in lines] == [
        "work_waits: letters",
        "work_waits: answers, recovery",
    ]


def test_texts_that_differ_in_numbers_are_one_cause(place):
    assert len(place.lines(letters=away("pid 12"), answers=away("pid 345"))) == 1


def test_what_is_back_is_said_once(place):
    place.lines(**all_away())
    assert place.lines() == ["answers, letters, recovery go on"]
    assert place.lines() == []


def test_what_comes_and_goes_is_two_lines_a_minute(place):
    said = [line for _ in range(5) for line in (*place.lines(letters=away()), *place.lines())]
    assert len(said) == 2


def test_a_fault_of_ours_keeps_its_stack_trace(place, caplog):
    place.lines(letters=ValueError("odd"))
    assert caplog.records[0].exc_info
