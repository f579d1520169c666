"""A chain of dead-letter queues: what one does not take, the next one does."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue, channel
from angzarr.dead_letters.codec import Encoded
from angzarr.dead_letters.fallback_queue import LONGEST_PAUSE, FallbackQueue
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import RawLetter, Receipt, TooLarge
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable
from contracts.dead_letters import (
    DeadLetterQueueContract,
    RawLettersContract,
    a_letter,
    letters_of,
)
from hand_clock import HandClock
from unit.dead_letters.letterboxes import Target

SECOND = timedelta(seconds=1)


class TestFallbackQueue(RawLettersContract, DeadLetterQueueContract):
    """Two queues in memory; the second is where other clients put what they put."""

    @pytest.fixture(autouse=True)
    def backend(self) -> None:
        self.name = uuid.uuid4().hex

    def open(self) -> FallbackQueue:
        queues = {name: MemoryDeadLetterQueue(f"{self.name}-{name}") for name in ("one", "two")}
        return FallbackQueue(queues, chance=lambda: 0.5)

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        shared = channel(f"{self.name}-two")
        with shared.changed:
            shared.queue(queue_name(domain)).append(Encoded(raw, content_type or ""))
            shared.changed.notify_all()


class World:
    """A chain of kafka, amqp and the spool, with hands."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.kafka = Target("kafka", self.clock.sleep)
        self.amqp = Target("amqp", self.clock.sleep)
        self.spool = Target("spool", self.clock.sleep)
        self.confirmed: Counter[str] = Counter()
        self.chain = FallbackQueue(
            {"kafka": self.kafka, "amqp": self.amqp},
            spool=self.spool,
            chance=lambda: 1.0,
            confirmed=lambda target, count: self.confirmed.update({target: count}),
            monotonic=lambda: self.clock.now().timestamp(),
        )

    @property
    def targets(self):
        return (self.kafka, self.amqp, self.spool)

    def put(self, *numbers):
        return self.chain.put([a_letter("order", number) for number in numbers or (0,)])

    def receive(self, limit=10, wait=SECOND):
        return self.chain.receive(["order"], limit=limit, wait=wait)


@pytest.fixture
def world():
    return World()


def receipts(target, *numbers):
    target.waiting += [
        Receipt(domain="order", letter=a_letter("order", n), raw=b"", content_type="",
                handle=f"{target.name}-{n}")
        for n in numbers
    ]  # fmt: skip


# -- putting -----------------------------------------------------------------------------------


def test_the_first_target_that_confirms_wins(world):
    assert world.put(1, 2) == [None, None]
    assert (world.kafka.taken, world.amqp.asked, world.spool.asked) == (
        ["order-1", "order-2"],
        0,
        0,
    )
    assert world.confirmed == {"kafka": 2}


def test_only_letters_that_were_refused_go_to_the_next_target(world):
    world.kafka.against = {"order-2": "not authorised"}
    assert world.put(1, 2, 3) == [None] * 3
    assert world.kafka.taken == ["order-1", "order-3"]
    assert world.amqp.taken == ["order-2"]
    assert world.confirmed == {"kafka": 2, "amqp": 1}


def raw_letters(*names):
    return [RawLetter(domain="order", raw=name.encode(), content_type="") for name in names]


def test_bytes_that_are_no_letter_go_to_the_first_target_that_takes_any(world):
    raws = raw_letters("a", "b")
    world.amqp.put_raw = world.amqp.put
    assert world.chain.put_raw(raws) == [None, None]
    assert (world.kafka.asked, world.spool.asked) == (0, 0)
    assert world.amqp.taken == [one.id for one in raws]
    assert world.confirmed == {"amqp": 2}
    world.amqp.leave()
    world.spool.put_raw = world.spool.put
    assert world.chain.put_raw(raws) == [None, None]
    assert world.spool.taken == [one.id for one in raws]


def test_bytes_that_no_target_takes_are_refused_with_every_reason(world):
    [why] = world.chain.put_raw(raw_letters("a"))
    assert isinstance(why, TooLarge)
    assert "kafka: it cannot be read, and this destination takes nothing but letters" in why
    world.amqp.put_raw = world.amqp.put
    world.amqp.leave()
    [why] = world.chain.put_raw(raw_letters("a"))
    assert not isinstance(why, TooLarge), "one of them may take it yet"
    assert "amqp: amqp gave no answer" in why


def test_a_target_that_cannot_be_asked_is_followed_by_the_next(world):
    world.kafka.leave()
    world.amqp.leave()
    assert world.put(1) == [None]
    assert world.spool.taken == ["order-1"]


def test_a_client_that_breaks_is_followed_by_the_next_without_its_text(world, caplog):
    world.kafka.leave(TypeError("s3cret"))
    world.amqp.leave(ConfigurationError("a setting is refused"))
    world.spool.leave()
    with pytest.raises(DeadLetterQueueUnavailable) as caught:
        world.put()
    assert "kafka: its client broke (TypeError); amqp: a setting is refused" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "dead_letter_target_broke: kafka" in caplog.text


def test_a_reason_names_what_each_target_had_against_the_letter(world):
    for target in world.targets:
        target.against = {"order-1": f"{target.name} says no"}
    assert world.put(1, 2) == [
        "kafka: kafka says no; amqp: amqp says no; spool: spool says no", None
    ]  # fmt: skip


def test_too_large_for_all_is_too_large_and_for_some_is_not(world):
    for target in world.targets:
        target.against = {None: TooLarge("too large")}
    (answer,) = world.put()
    assert isinstance(answer, TooLarge)
    world.spool.against = {None: "full"}
    (answer,) = world.put()
    assert answer is not None
    assert not isinstance(answer, TooLarge)


def test_too_large_for_one_and_another_away_is_not_in_vain(world):
    world.kafka.leave()
    world.amqp.against = world.spool.against = {None: TooLarge("too large")}
    (answer,) = world.put()
    assert answer is not None
    assert not isinstance(answer, TooLarge)


def test_if_none_can_be_asked_the_sentence_names_each_ones_cause(world):
    for target in world.targets:
        target.leave()
    with pytest.raises(DeadLetterQueueUnavailable) as caught:
        world.put(1, 2)
    for target in world.targets:
        assert f"{target.name}: {target.name} gave no answer" in str(caught.value)


def test_an_outage_of_the_first_target_costs_its_time_out_seldom(world):
    world.kafka.leave()
    world.kafka.takes = timedelta(seconds=5)
    for n in range(100):
        assert world.put(n) == [None]
        world.clock.sleep(SECOND)
    assert world.kafka.asked <= 8
    assert len(world.amqp.taken) == 100


def test_a_target_is_asked_again_when_its_pause_is_over(world):
    world.kafka.leave()
    world.put(1)
    world.kafka.come_back()
    world.put(2)
    assert world.kafka.taken == []
    world.clock.sleep(LONGEST_PAUSE)
    world.put(3)
    world.put(4)
    assert world.kafka.taken == ["order-3", "order-4"]


def test_who_is_passed_over_is_asked_for_what_no_other_took(world):
    world.kafka.leave()
    world.put(1)
    world.kafka.come_back()
    world.amqp.leave()
    world.spool.against = {None: "full"}
    assert world.put(2) == [None]
    assert world.kafka.taken == ["order-2"]


def test_when_all_are_away_each_is_tried(world):
    for target in world.targets:
        target.leave()
    for _ in range(3):
        with pytest.raises(DeadLetterQueueUnavailable):
            world.put()
    assert [target.asked for target in world.targets] == [3, 3, 3]


def test_a_target_that_confirms_nothing_and_takes_long_is_passed_over_like_one_away(world):
    world.kafka.takes = timedelta(seconds=5)
    world.kafka.against = {None: "RabbitMQ did not confirm it within 5 s"}
    world.put(1)
    world.put(2)
    assert world.kafka.asked == 1


def test_a_target_that_takes_long_to_say_too_large_is_not_away(world):
    world.kafka.takes = timedelta(seconds=5)
    world.kafka.against = {"order-1": TooLarge("too large")}
    world.put(1)
    world.put(2)
    assert world.kafka.taken == ["order-2"]


def test_falling_back_is_one_line_a_minute_that_names_the_cause(world, caplog):
    world.kafka.leave()
    for n in range(30):
        world.put(n)
        world.clock.sleep(SECOND)
    lines = [r.message for r in caplog.records if "dead_letters_fall_back" in r.message]
    assert lines == ["dead_letters_fall_back: they go to amqp for now: kafka: kafka gave no answer"]
    world.clock.sleep(timedelta(minutes=1))
    world.put(99)
    assert caplog.text.count("dead_letters_fall_back") == 2
    assert {r.levelno for r in caplog.records} == {logging.WARNING}


_answers = st.sampled_from([None, "no", TooLarge("too large")])


@given(st.lists(st.lists(st.tuples(_answers, _answers, _answers), max_size=5), max_size=6),
       st.lists(st.sets(st.integers(0, 2)), min_size=6, max_size=6))  # fmt: skip
def test_whatever_happens_a_letter_is_confirmed_if_and_only_if_a_target_has_it(rounds, aways):
    """A letter that is not confirmed was offered to every target, and none is taken twice."""
    world = World()
    for number, (verdicts, away) in enumerate(zip(rounds, aways, strict=False)):
        names = [f"order-{number * 10 + n}" for n in range(len(verdicts))]
        for at, target in enumerate(world.targets):
            target.against = {
                name: verdict[at] for name, verdict in zip(names, verdicts, strict=True)
                if verdict[at]
            }  # fmt: skip
            target.leave() if at in away else target.come_back()
        try:
            answers = world.put(*(number * 10 + n for n in range(len(verdicts)))) if names else []
        except DeadLetterQueueUnavailable:
            assert away == {0, 1, 2}
            continue
        taken = Counter(one for target in world.targets for one in target.taken)
        for name, verdict, answer in zip(names, verdicts, answers, strict=True):
            assert (answer is None) == (taken[name] == 1)
            if answer is not None:
                assert all(verdict[at] or at in away for at in range(3))
                all_large = not away and all(isinstance(one, TooLarge) for one in verdict)
                assert isinstance(answer, TooLarge) == all_large


# -- receiving ---------------------------------------------------------------------------------


def test_letters_come_from_every_queue_and_go_back_to_the_right_one(world):
    receipts(world.kafka, 1, 2)
    receipts(world.amqp, 3)
    taken = world.receive()
    assert sorted(one.letter.id for one in taken) == ["order-1", "order-2", "order-3"]
    world.chain.done(taken[:2])
    world.chain.done(taken[2:])
    assert world.kafka.done_with == ["kafka-1", "kafka-2"]
    assert world.amqp.done_with == ["amqp-3"]


def test_the_spool_is_never_read(world):
    receipts(world.spool, 1)
    assert world.receive() == []
    assert world.spool.asked == 0


def test_a_full_queue_starves_no_other(world):
    receipts(world.kafka, *range(100))
    receipts(world.amqp, *range(100, 110))
    taken = [one for _ in range(4) for one in world.receive(limit=5)]
    assert sum(one.handle.target == "amqp" for one in taken) == 10


def test_the_wait_is_shared_and_not_exceeded(world):
    began = world.clock.now()
    assert world.receive(wait=timedelta(seconds=10)) == []
    assert world.clock.now() - began == timedelta(seconds=10)
    assert [max(target.waits) for target in (world.kafka, world.amqp)] == [timedelta(seconds=5)] * 2


def test_a_short_wait_is_one_queues_at_a_time_in_turn(world):
    for _ in range(4):
        world.receive(wait=SECOND)
    waited = [target.waits.count(SECOND) for target in (world.kafka, world.amqp)]
    assert waited == [2, 2]


def test_a_queue_that_is_away_does_not_keep_the_others_from_being_read(world):
    world.kafka.leave()
    world.kafka.takes = timedelta(seconds=5)
    for n in range(20):
        receipts(world.amqp, n)
        assert [one.handle.target for one in world.receive()] == ["amqp"]
        world.clock.sleep(SECOND)
    assert world.kafka.asked < 6


def test_a_queue_that_is_away_is_told_where_nothing_came(world):
    world.kafka.leave()
    with pytest.raises(DeadLetterQueueUnavailable, match="kafka: kafka gave no answer"):
        world.receive()
    world.kafka.come_back()
    world.clock.sleep(LONGEST_PAUSE)
    assert world.receive() == []


def test_when_all_queues_are_away_each_is_tried_and_nobody_waits(world):
    world.kafka.leave()
    world.amqp.leave()
    for _ in range(3):
        with pytest.raises(DeadLetterQueueUnavailable):
            world.receive()
    assert (world.kafka.asked, world.amqp.asked) == (3, 3)
    assert world.spool.asked == 0


def test_reading_that_fails_does_not_keep_letters_from_being_put(world):
    world.kafka.leave()
    with pytest.raises(DeadLetterQueueUnavailable):
        world.receive()
    world.kafka.come_back()
    world.put(1)
    assert world.kafka.taken == ["order-1"]


def test_done_reaches_the_others_if_one_is_away(world):
    receipts(world.kafka, 1)
    receipts(world.amqp, 2)
    taken = world.receive()
    world.kafka.leave()
    with pytest.raises(DeadLetterQueueUnavailable):
        world.chain.done(taken)
    assert world.amqp.done_with == ["amqp-2"]
    world.kafka.come_back()
    world.chain.done(taken)
    assert world.kafka.done_with == ["kafka-1"]


def test_receipts_of_others_are_ignored(world):
    receipts(world.kafka, 1)
    world.chain.done(world.kafka.waiting)
    assert world.kafka.done_with == []


def test_all_targets_are_closed_even_if_one_fails(world, monkeypatch):
    def fail():
        raise OSError

    monkeypatch.setattr(world.spool, "close", fail)
    with pytest.raises(OSError):
        world.chain.close()
    assert (world.kafka.closed, world.amqp.closed) == (1, 1)


def test_a_put_of_nothing_asks_nobody(world):
    assert world.chain.put(letters_of("order", 0)) == []
    assert world.kafka.asked == 0
