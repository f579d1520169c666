"""Settle under every break: whatever dies between two of its steps, the event stays one event."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.queue import TooLarge
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Postponed, Retried, Skipped
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.settle import MOST_REFUSALS
from angzarr.errors import (
    BrokerUnavailable,
    CompensationFailed,
    DeliveryError,
    GivenBack,
    GiveUp,
    Postpone,
    RetryLater,
    Skip,
    StoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy
from angzarr.resilience.idempotency import Claimed, Complete, Release, Wait

POLICY = Policy(
    name="three", base=timedelta(seconds=2), max_delay=timedelta(seconds=2), max_attempts=3
)


class Struck(Exception):
    """A time limit, raised wherever the code happens to be."""


class Killed(BaseException):
    """The process ends between two lines."""


def killed(*_):
    raise Killed


class KilledBeforeEnd:
    """The shared store as one process sees it that dies before it ends a claim."""

    settle = staticmethod(killed)

    def __init__(self, store):
        self.owns = store.owns


def kept_facts(world):
    return [one.text for one in world.store.outbox.read(1000)]


def raising(error):
    def call(_data, _context):
        raise error

    return call


# -- breaks that are no absence ---------------------------------------------------------------


def test_a_time_limit_that_strikes_while_settle_waits_lets_nothing_go(world):
    world.handler(raising(GiveUp("no")))
    world.journal.letters_away.times = 3
    sleep, struck = world.clock.sleep, []

    def striking(span):
        sleep(span)
        if not struck:
            struck.append(span)
            raise Struck

    world.clock.sleep = striking
    assert isinstance(world.take(), DeadLettered)
    assert struck
    assert len(world.journal.letters) == 1


def test_what_breaks_outside_every_step_gives_the_message_back(world, monkeypatch):
    monkeypatch.setattr(DeliveryExecutor, "_admit", lambda *_, **__: (_ for _ in ()).throw(Struck))
    world.handler(lambda _data, _context: None)
    with pytest.raises(GivenBack, match="Struck"):
        world.take()
    assert world.journal.entries == ["release"]


def test_what_breaks_every_time_ends_as_a_letter_and_not_as_a_loop(world, monkeypatch):
    monkeypatch.setattr(
        "angzarr.delivery.invoke.HandlerInvoker.call", lambda *_: (_ for _ in ()).throw(Struck)
    )
    world.handler(lambda _data, _context: None)
    for _ in range(3):
        with pytest.raises(GivenBack):
            world.take()
    assert world.take().letter.reason is Reason.POISON


def test_a_store_that_breaks_at_the_release_still_gives_the_message_back(world, monkeypatch):
    world.handler(raising(GiveUp("no")))
    world.journal.letters_away.times = 10**9
    world.stop = True

    def broken(*_):
        raise RuntimeError("a bug of the store")

    monkeypatch.setattr(world.store, "settle", broken)
    with pytest.raises(GivenBack):
        world.take()


def test_an_event_whose_own_code_breaks_while_it_is_decoded_is_a_letter(world):
    def bind(_delivery, _context):
        raise RuntimeError("a validator's bug")

    world.handler(None, bind=bind)
    assert world.take().letter.reason is Reason.UNDELIVERABLE
    assert world.journal.entries == ["letter", "fact"]


def test_a_body_too_deep_to_digest_is_a_letter(world):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    world.handler(lambda _data, _context: pytest.fail("must not run"))
    delivery = dataclasses.replace(world.delivery(), args=[deep])
    assert world.road().take(delivery).letter.reason is Reason.UNDELIVERABLE


def test_a_kept_result_that_cannot_be_read_is_a_duplicate_without_it(world):
    world.handler(lambda _data, _context: 1)
    claim = world.delivery().claim
    world.store.claim([claim])
    world.store.settle(claim.key, claim.token, Complete(result="{not json"))
    assert world.take() == Duplicate(kept=False)


def test_what_follows_but_can_never_be_sent_is_a_letter_and_is_not_held(world):
    world.handler(lambda _data, _context: 1)
    road = world.road()

    def publish(_delivery, _value):
        raise DeliveryError("the value is no JSON")

    road.settler.followers.publish = publish
    outcome = road.take(world.delivery())
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.error_code == "UNFOLLOWABLE"
    assert world.journal.entries == ["letter", "fact", "fail"]


def test_a_delay_beyond_all_calendars_is_capped(world):
    world.handler(raising(RetryLater(timedelta.max)), policy=POLICY)
    assert isinstance(world.take(), Retried)
    assert world.journal.copies[0][1].year < 2100


# -- what each outcome leaves -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "outcome", "left"),
    [
        (None, Handled, ["followers", "fact", "complete"]),
        (Skip("no"), Skipped, ["fact", "complete"]),
        (GiveUp("no"), DeadLettered, ["letter", "fact", "fail"]),
        (ConnectionResetError(), Retried, ["tell_retry", "copy", "fact", "wait"]),
        (Postpone(1), Postponed, ["copy", "fact", "wait"]),
    ],
)
def test_the_copy_comes_first_and_the_claim_ends_last(world, error, outcome, left):
    world.handler(raising(error) if error else lambda _data, _context: None, policy=POLICY)
    assert isinstance(world.take(), outcome)
    assert world.journal.entries == left


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (None, "handled"),
        (Skip("no"), "skipped"),
        (GiveUp("no"), "refused"),
        (ConnectionResetError(), "tool_failure"),
        (Postpone(1), "postponed"),
    ],
)
def test_the_claim_keeps_the_fact_of_its_end(world, error, kept):
    world.handler(raising(error) if error else lambda _data, _context: None, policy=POLICY)
    world.take()
    assert kept_facts(world) == [kept]


def test_a_success_that_is_left_to_its_acknowledgement_leaves_its_fact_with_it(world):
    world.handler(lambda _data, _context: 7)
    delivery = dataclasses.replace(world.delivery(), answer=Claimed(), ack_follows=True)
    world.store.claim([delivery.claim])
    road = world.road()
    outcome = road.take(delivery)
    assert kept_facts(world) == []
    left = road.settler.leave(delivery, outcome)
    assert left == (Complete(result="7"), ("handled",))
    assert world.journal.entries == ["followers", "fact before ack"]
    road.complete(delivery, left)
    assert kept_facts(world) == ["handled"]
    assert road.settler.leave(delivery, Postponed(delay=timedelta(1), why="", claimed=True)) is None


def test_a_late_owner_whose_claim_cannot_end_keeps_no_fact_of_its_outcome(world, monkeypatch):
    def overtaken(_data, _context):
        world.leases.end("late")
        world.store.claim([world.delivery(owner="w1").claim])

    world.leases.renew("late", timedelta(days=1))
    world.handler(overtaken, policy=POLICY)
    assert world.take(owner="late") is None
    assert kept_facts(world) == []
    assert [fact.subtype for fact in world.journal.facts] == ["handled", "fenced"]


@pytest.mark.parametrize("error", [GiveUp("no"), ConnectionResetError(), Postpone(1)])
def test_a_late_owner_publishes_neither_letter_nor_copy(world, error):
    def overtaken(_data, _context):
        world.leases.end("late")
        world.store.claim([world.delivery(owner="w1").claim])
        raise error

    world.leases.renew("late", timedelta(days=1))
    world.handler(overtaken, policy=POLICY)
    assert world.take(owner="late") is None
    assert not {"tell_retry", "copy", "letter", "followers"} & {*world.journal.entries}
    assert world.journal.facts[0].subtype == "fenced"
    assert kept_facts(world) == []


@pytest.mark.parametrize(
    ("error", "kept"), [(ConnectionResetError(), "tool_failure"), (Postpone(1), "postponed")]
)
@pytest.mark.parametrize("dies_at", ["copy", "wait"])
def test_a_kill_behind_the_question_for_the_claim_loses_no_fact(world, error, kept, dies_at):
    """The copy may run first, and then the killed delivery is superseded and tells nothing."""
    runs = [error, None]

    def handle(_data, _context):
        if failed := runs.pop(0):
            raise failed

    world.handler(handle, policy=POLICY)
    world.leases.renew("killed", timedelta(days=1))
    road = world.road()
    settler = dataclasses.replace(road.settler, store=KilledBeforeEnd(world.store))
    if dies_at == "copy":
        settler.schedule.put = killed
    message = world.message()
    with pytest.raises(Killed):
        dataclasses.replace(road, settler=settler).take(world.delivery(message, owner="killed"))
    assert kept_facts(world) == [kept]
    if dies_at == "wait":
        world.leases.end("killed")
        world.clock.sleep(timedelta(seconds=5))
        assert isinstance(world.take(world.last_copy()), Handled)
        assert isinstance(world.take(message), Duplicate)
        assert kept_facts(world) == [kept, "handled"]


def test_a_letter_whose_process_is_killed_behind_it_has_its_fact(world):
    """The event comes again and may end otherwise; the letter is there all the same."""
    runs = [GiveUp("no"), None]

    def handle(_data, _context):
        if failed := runs.pop(0):
            raise failed

    world.handler(handle, policy=POLICY)
    world.leases.renew("killed", timedelta(days=1))
    road = world.road()
    settler = dataclasses.replace(road.settler, store=KilledBeforeEnd(world.store))
    message = world.message()
    with pytest.raises(Killed):
        dataclasses.replace(road, settler=settler).take(world.delivery(message, owner="killed"))
    world.leases.end("killed")
    assert isinstance(world.take(message), Handled)
    (letter,) = world.journal.letters
    assert kept_facts(world) == ["refused", "handled"]
    assert world.journal.facts[0].data["letter_id"] == letter.id


def test_an_absent_broker_is_tried_often_and_the_fact_is_kept_once(world):
    world.handler(raising(ConnectionResetError()), policy=POLICY)
    world.journal.broker_away.times = 20
    assert isinstance(world.take(), Retried)
    assert len(world.store.asked) == 21
    assert kept_facts(world) == ["tool_failure"]
    assert world.journal.entries == [*["tell_retry"] * 21, "copy", "fact", "wait"]


def test_a_fact_whose_keeping_failed_is_kept_by_the_next_try(world, monkeypatch):
    world.handler(raising(ConnectionResetError()), policy=POLICY)
    away, owns = [StoreUnavailable("away")] * 2, world.store.owns

    def shaky(key, token, facts=()):
        if away:
            raise away.pop()
        return owns(key, token, facts)

    monkeypatch.setattr(world.store, "owns", shaky)
    assert isinstance(world.take(), Retried)
    assert kept_facts(world) == ["tool_failure"]


def test_what_waits_is_no_longer_remembered_once_its_claim_has_ended(world):
    world.handler(raising(Postpone(1)), policy=POLICY)
    road = world.road()
    for _ in range(3):
        road.take(world.delivery(event_id=f"e{world.tokens}"))
    assert kept_facts(world) == ["postponed"] * 3
    assert len(road.settler._kept) == 0


def test_a_short_wait_is_slept_in_the_slot_and_the_copy_is_due_at_once(world):
    world.handler(raising(RetryLater(0.05)), policy=POLICY)
    before = world.clock.now()
    world.take()
    assert world.clock.now() - before == timedelta(milliseconds=50)
    assert world.journal.copies[0][1] == world.clock.now()


def test_the_first_attempts_time_stays_through_all_copies(world):
    world.handler(raising(ConnectionResetError()), policy=POLICY)
    world.take()
    first = world.last_copy().headers[names.FIRST_ATTEMPT_AT]
    world.clock.sleep(timedelta(seconds=10))
    world.take(world.last_copy())
    assert world.last_copy().headers[names.FIRST_ATTEMPT_AT] == first


# -- a model of everything that can die ---------------------------------------------------------


#: Right after which step the process dies; "stall": its lease ends but it goes on, late.
POINTS = ["claim", "run", "copy", "letter", "fact", "end", "ack", "stall", None, None]


@dataclass(frozen=True)
class Step:
    """One delivery: of which message, what becomes of it, and what is delivered meanwhile."""

    pick: int
    dies: str | None
    fails: bool
    freed: bool  # the parent lives and frees the claim of its dead child
    meanwhile: int | None
    pause: int


STEPS = st.lists(
    st.builds(
        Step,
        pick=st.integers(0, 9),
        dies=st.sampled_from(POINTS),
        fails=st.booleans(),
        freed=st.booleans(),
        meanwhile=st.none() | st.integers(0, 9),
        pause=st.integers(0, 4),
    ),
    max_size=12,
)


class Broker:
    """A queue with redelivery, workers that die, and an account of what they did."""

    def __init__(self, world, copies):
        self.world = world
        self.queue = [world.message() for _ in range(copies)]
        self.steps = []  # innermost last
        self.running = set()
        self.hops = set()  # of copies that were published
        self.most_running = 0
        self.deaths = 0
        self.attempts = []
        self.endings = []
        self.handled = 0
        world.handler(self.run, policy=POLICY)

    def deliver(self, step):
        if not self.queue:
            return
        message = self.queue.pop(step.pick % len(self.queue))
        delivery = self.world.delivery(message, owner=f"owner{self.world.tokens}")
        self.world.leases.renew(delivery.owner, timedelta(days=30))
        copies = len(self.world.journal.copies)
        self.steps.append((step, delivery))
        try:
            self.road(step).take(delivery)
            self.die_after(step, "ack")
        except Killed:
            self.bury(step, delivery)
            self.queue.append(message)
        finally:
            self.steps.pop()
            self.running.discard(delivery.token)
            published = [copy for copy, _ in self.world.journal.copies[copies:]]
            self.hops |= {copy.headers.get(names.HOP, 0) for copy in published}
            self.queue.extend(published)
            del self.world.journal.copies[copies:]
        self.world.clock.sleep(timedelta(seconds=step.pause))

    def bury(self, step, delivery):
        self.deaths += 1
        if step.freed:
            self.world.store.settle(delivery.key, delivery.token, Release(counted=True))
        else:
            self.world.leases.end(delivery.owner)

    def road(self, step):
        road = self.world.road()
        store = Store(self, step)
        settler = dataclasses.replace(road.settler, store=store)
        for port, verb, point in [
            (settler.schedule, "put", "copy"),
            (settler.dead_letters, "put", "letter"),
            (settler.facts, "append", "fact"),
        ]:
            setattr(port, verb, self.then_die(getattr(port, verb), step, point))
        claiming = dataclasses.replace(road.claimer, store=store)
        return dataclasses.replace(road, claimer=claiming, settler=settler)

    def then_die(self, verb, step, point):
        def call(*args, **options):
            value = verb(*args, **options)
            self.die_after(step, point)
            return value

        return call

    @staticmethod
    def die_after(step, point):
        if step.dies == point:
            raise Killed

    def run(self, _data, context):
        step, delivery = self.steps[-1]
        self.attempts.append(context.attempt)
        if step.dies == "stall":
            self.deaths += 1  # to the others; its effects may overlap with its successor's
            self.world.leases.end(delivery.owner)
        else:
            self.running.add(delivery.token)
        self.most_running = max(self.most_running, len(self.running))
        if step.meanwhile is not None and len(self.steps) == 1:
            inner = Step(step.meanwhile, None, not step.fails, freed=False, meanwhile=None, pause=0)
            self.deliver(inner)
        self.die_after(step, "run")
        if step.fails:
            raise ConnectionResetError
        self.handled += 1

    def drain(self):
        for _ in range(100):
            if not self.queue:
                return
            self.world.clock.sleep(timedelta(seconds=5))
            self.deliver(Step(0, None, fails=False, freed=False, meanwhile=None, pause=0))
        pytest.fail(f"a stream goes on for ever: {self.queue}")


class Store:
    """The shared store as one process sees it, until that dies."""

    def __init__(self, broker, step):
        self.broker, self.step = broker, step
        self.owns = broker.world.store.owns

    def claim(self, claims):
        answers = self.broker.world.store.claim(claims)
        self.broker.die_after(self.step, "claim")
        return answers

    def settle(self, key, token, ending, facts=()):
        held = self.broker.world.store.settle(key, token, ending, facts)
        if held and not isinstance(ending, Release):
            self.broker.endings.append(ending)
        self.broker.die_after(self.step, "end")
        return held


@settings(max_examples=400)
@given(steps=STEPS, copies=st.integers(1, 3))
def test_whatever_dies_between_two_steps_one_stream_lives_and_ends(steps, copies):
    broker = Broker(WORLD(), copies)
    for step in steps:
        broker.deliver(step)
    broker.drain()
    letters = {letter.id for letter in broker.world.journal.letters}
    reasons = {letter.reason for letter in broker.world.journal.letters}
    completed = [ending for ending in broker.endings if isinstance(ending, Complete)]
    waited = [ending.position.hop for ending in broker.endings if isinstance(ending, Wait)]
    assert broker.handled or letters, "the event disappeared"
    assert len(completed) <= 1
    assert len(letters) <= 1, "one event, two letters"
    if completed and letters:  # its replay will find it completed, and resolve the letter
        assert {step.dies for step in steps} & {"letter", "fact"}, "handled and dead"
    assert broker.most_running <= 1, "two runs at a time"
    assert len(waited) == len(set(waited)), "the stream of retries forked"
    assert kept_facts(broker.world).count("tool_failure") >= len(broker.hops - {0}), "not told"
    assert max(broker.attempts, default=1) <= POLICY.max_attempts
    assert len(broker.attempts) <= POLICY.max_attempts + broker.deaths + len(steps)
    if Reason.POISON in reasons:
        assert broker.deaths >= 3, "poison without three deaths"


@pytest.fixture(autouse=True)
def _make_worlds(world):
    global WORLD  # noqa: PLW0603 - hypothesis makes many, a fixture one
    WORLD = type(world)


WORLD = None


@pytest.mark.parametrize("attempt", [1, 5])
def test_a_letter_larger_than_its_queue_takes_keeps_the_event_and_no_slot(world, caplog, attempt):
    def fail(_data, _context):
        raise ConnectionResetError if attempt > 1 else GiveUp("no")

    world.handler(fail)
    world.journal.refusal = TooLarge("1 MiB at most")
    outcome = world.take(**{"angzarr-attempt": attempt})
    assert isinstance(outcome, Postponed)
    assert outcome.delay == timedelta(hours=1)
    assert world.journal.letters == []
    assert world.last_copy().headers["angzarr-attempt"] == attempt
    assert world.journal.entries[-1] == "wait"
    assert "letter_too_large" in caplog.text


def test_what_never_can_follow_and_is_too_large_for_a_letter_is_kept_as_well(world, monkeypatch):
    world.handler(lambda _data, _context: None)
    world.journal.refusal = TooLarge("1 MiB at most")

    def never(*_):
        raise DeliveryError("no task")

    road = world.road()
    monkeypatch.setattr(type(road.settler.followers), "publish", never)
    assert isinstance(road.take(world.delivery()), Postponed)


@pytest.fixture
def failing(world):
    """Let the handler give up, and *then* follow its letter."""

    def failing(then):
        def handler(_event, _context):
            raise CompensationFailed("nobody undid it", then)

        world.handler(handler)
        return world.take()

    return failing


def test_it_is_done_once_the_letter_is_there_and_before_the_claim_ends(world, failing):
    seen = []
    outcome = failing(lambda: seen.append(len(world.journal.letters)))
    assert seen == [1]
    assert outcome.letter.reason is Reason.COMPENSATION


def test_while_the_broker_is_away_it_is_tried_again_and_the_letter_is_not(world, failing):
    tries = []

    def then():
        tries.append(1)
        if len(tries) < 30:
            raise BrokerUnavailable("away")

    failing(then)
    assert len(tries) == 30
    assert len(world.journal.letters) == 1


def test_what_the_broker_refuses_is_not_tried_for_ever(world, failing, caplog):
    tries = []

    def then():
        tries.append(1)
        raise BrokerUnavailable("its queue has other arguments", refused=True)

    failing(then)
    assert len(tries) == MOST_REFUSALS
    assert len(world.journal.letters) == 1
    assert "not_sent_behind_its_letter" in caplog.text


def test_room_in_a_full_queue_is_waited_for_however_long_it_takes(world, failing):
    tries = []

    def then():
        tries.append(1)
        if len(tries) < 3 * MOST_REFUSALS:
            raise BrokerUnavailable("its queue is full", refused=True, passing=True)

    failing(then)
    assert len(tries) == 3 * MOST_REFUSALS
