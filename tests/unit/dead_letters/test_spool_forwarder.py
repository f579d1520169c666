"""What waits in a spool is forwarded in order, whatever goes wrong, and nothing keeps the rest."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.queue import RawLetter, TooLarge
from angzarr.dead_letters.spool_forwarder import (
    BATCH,
    BATCH_BYTES,
    KEPT_FOR,
    LONGEST_WAIT,
    LOOK_EVERY,
    Aside,
    Forwarder,
    Spooled,
)
from angzarr.errors import DeadLetterQueueUnavailable, DecodeError
from contracts.dead_letters import a_letter
from hand_clock import HandClock
from unit.dead_letters.letterboxes import Target

SECOND = timedelta(seconds=1)


class Disk:
    """A spool in memory."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.files: dict[str, Spooled] = {}
        self.damaged: set[str] = set()
        self.unreadable: set[str] = set()
        self.raw: set[str] = set()
        self.aside: dict[str, Aside] = {}
        self.others_forward = False
        self.away = False
        self.listed = 0

    def put(self, *numbers, size=100):
        for n in numbers:
            name = f"order-{n}"
            self.files[name] = Spooled(f"{n:05d}", self.clock.now(), size, name)

    def waiting(self):
        self._work()
        self.listed += 1
        return sorted(self.files.values())

    def read(self, one, /):
        if one.letter_id in self.unreadable:
            raise DeadLetterQueueUnavailable("input/output error")
        if one.letter_id in self.damaged:
            raise DecodeError("it was cut")
        if one.letter_id not in self.files:
            return None
        if one.letter_id in self.raw:
            return RawLetter(domain="order", raw=one.letter_id.encode(), content_type="")
        return a_letter("order", int(one.letter_id.removeprefix("order-")))

    def done(self, letters, /):
        self._work()
        for one in letters:
            self.files.pop(one.letter_id, None)

    def set_aside(self, one, aside, /):
        self._work()
        self.aside[one.letter_id] = aside
        self.files.pop(one.letter_id, None)

    @contextlib.contextmanager
    def alone(self):
        yield not self.others_forward

    def _work(self):
        if self.away:
            raise DeadLetterQueueUnavailable("the disk is away")


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.disk = Disk(self.clock)
        self.kafka = Target("kafka", self.clock.sleep)
        self.forwarder = self.another()

    def another(self):
        return Forwarder(
            spool=self.disk,
            queue=self.kafka,
            chance=lambda: 0.5,
            monotonic=lambda: self.clock.now().timestamp(),
        )

    def turns(self, count=1):
        for _ in range(count):
            wait = self.forwarder.turn()
            self.clock.sleep(wait)
        return wait


@pytest.fixture
def world():
    return World()


def ids(*numbers):
    return [f"order-{n}" for n in numbers]


def test_what_waits_is_forwarded_in_order_and_deleted_once_confirmed(world):
    world.disk.put(3, 1, 2)
    world.turns()
    assert world.kafka.taken == ids(1, 2, 3)
    assert world.disk.files == {}


def test_an_empty_spool_is_looked_at_and_no_queue_is_asked(world):
    assert timedelta(0) < world.turns() <= LOOK_EVERY
    assert world.kafka.asked == 0


def test_what_was_not_confirmed_is_kept(world):
    world.disk.put(1, 2)
    world.kafka.leave()
    assert timedelta(0) < world.turns() <= LONGEST_WAIT
    assert list(world.disk.files) == ids(1, 2)
    world.kafka.come_back()
    world.turns()
    assert world.kafka.taken == ids(1, 2)


def test_pauses_grow_up_to_the_longest_while_nothing_takes_letters(world):
    world.disk.put(1)
    world.kafka.leave()
    waits = [world.turns() for _ in range(10)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT


def test_a_letter_that_is_refused_for_now_keeps_no_other_and_is_tried_again(world):
    world.disk.put(*range(2 * BATCH))
    world.kafka.against = dict.fromkeys(ids(*range(BATCH + 5)), "not authorised")
    world.turns(3)
    assert world.kafka.taken == ids(*range(BATCH + 5, 2 * BATCH))
    world.kafka.against = {}
    world.clock.sleep(KEPT_FOR)
    world.turns(3)
    assert world.disk.files == {}


def test_a_queue_that_refuses_everything_is_not_flooded(world):
    world.disk.put(*range(10 * BATCH))
    world.kafka.against = {None: "its queue is full"}
    began = world.clock.now()
    while world.clock.now() - began < timedelta(minutes=1):
        world.turns()
    assert world.kafka.asked < 60


def test_a_letter_that_no_queue_ever_takes_is_set_aside(world, caplog):
    world.disk.put(1, 2)
    world.kafka.against = {"order-1": TooLarge("kafka: too large")}
    world.turns()
    assert world.kafka.taken == ["order-2"]
    assert world.disk.aside == {"order-1": Aside.REFUSED}
    assert "spool_letter_refused: 00001 is set aside: kafka: too large" in caplog.text


def test_bytes_that_are_no_letter_are_forwarded_among_letters(world):
    world.kafka.put_raw = world.kafka.put
    world.disk.put(1, 2, 3)
    world.disk.raw = {"order-2"}
    world.turns()
    raw = RawLetter(domain="order", raw=b"order-2", content_type="")
    assert world.kafka.taken == ["order-1", "order-3", raw.id]
    assert not world.disk.files


def test_bytes_that_a_queue_of_letters_alone_never_takes_are_set_aside(world):
    world.disk.put(1, 2)
    world.disk.raw = {"order-2"}
    world.turns()
    assert world.kafka.taken == ["order-1"]
    assert world.disk.aside == {"order-2": Aside.REFUSED}


def test_bytes_whose_queue_is_away_have_no_letter_forwarded_twice(world):
    def put_raw(_letters):
        raise DeadLetterQueueUnavailable("the queue of billing is away")

    world.kafka.put_raw = put_raw
    world.disk.put(1, 2)
    world.disk.raw = {"order-2"}
    world.turns(3)
    assert world.kafka.taken == ["order-1"]
    assert list(world.disk.files) == ["order-2"]
    world.kafka.put_raw = world.kafka.put
    world.clock.sleep(KEPT_FOR)
    world.turns(2)
    assert not world.disk.files


def test_a_damaged_file_is_set_aside_and_the_rest_forwarded(world, caplog):
    world.disk.put(1, 2)
    world.disk.damaged = {"order-1"}
    world.turns()
    assert world.kafka.taken == ["order-2"]
    assert world.disk.aside == {"order-1": Aside.DAMAGED}
    assert "spool_letter_damaged: 00001 is set aside: it was cut" in caplog.text


def test_a_file_that_cannot_be_read_now_is_kept_and_the_rest_forwarded(world):
    world.disk.put(1, 2)
    world.disk.unreadable = {"order-1"}
    world.turns()
    assert (world.kafka.taken, list(world.disk.files)) == (["order-2"], ["order-1"])
    world.disk.unreadable = set()
    world.clock.sleep(KEPT_FOR)
    world.turns()
    assert world.kafka.taken == ids(2, 1)


def test_while_another_process_forwards_this_one_does_not(world):
    world.disk.put(1)
    world.disk.others_forward = True
    world.turns(3)
    assert world.kafka.asked == 0
    world.disk.others_forward = False
    world.turns()
    assert world.kafka.taken == ["order-1"]


def test_what_another_process_has_forwarded_meanwhile_is_passed_over(world):
    world.disk.put(*range(5 * BATCH))
    world.turns()
    for n in range(BATCH, 5 * BATCH):
        del world.disk.files[f"order-{n}"]
    world.disk.put(7)
    world.turns(2)
    assert world.kafka.taken == ids(*range(BATCH), 7)


def test_a_forwarder_that_dies_before_it_deletes_forwards_twice_and_loses_nothing(world):
    world.disk.put(1, 2)
    world.disk.done = lambda _letters: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        world.forwarder.turn()
    del world.disk.done
    world.forwarder = world.another()
    world.turns()
    assert world.kafka.taken == ids(1, 2, 1, 2)
    assert world.disk.files == {}


def test_while_letters_cannot_be_deleted_they_are_forwarded_once_and_not_again_and_again(world):
    def fail(_letters):
        raise DeadLetterQueueUnavailable("operation not permitted")

    world.disk.put(1, 2)
    world.disk.done = fail
    world.turns(5)
    world.disk.put(3)
    world.turns(5)
    assert world.kafka.taken == ids(1, 2)
    del world.disk.done
    world.turns(3)
    assert world.kafka.taken == ids(1, 2, 3)
    assert world.disk.files == {}


def test_a_long_spool_is_listed_once_and_not_for_every_batch(world):
    world.disk.put(*range(20 * BATCH))
    world.turns(21)
    assert world.kafka.taken == ids(*range(20 * BATCH))
    assert world.disk.listed <= 3


def test_large_letters_make_small_batches(world):
    world.disk.put(*range(5), size=BATCH_BYTES)
    world.turns(5)
    assert (world.kafka.asked, world.kafka.taken) == (5, ids(*range(5)))


def test_a_disk_that_fails_is_said_once_a_minute_and_tried_again(world, caplog):
    world.disk.put(1)
    world.disk.away = True
    world.turns(5)
    assert caplog.text.count("spool_waits") == 1
    assert "Traceback" not in caplog.text
    world.disk.away = False
    world.turns()
    assert world.kafka.taken == ["order-1"]


def test_whatever_breaks_the_thread_goes_on_and_the_letters_are_kept(world, caplog):
    world.disk.put(1)
    world.kafka.leave(TypeError("a bug"))
    assert world.turns() > timedelta(0)
    assert "Traceback" in caplog.text
    assert list(world.disk.files) == ["order-1"]


def test_the_end_is_told_once_with_its_number(world, caplog):
    world.disk.put(*range(BATCH + 1))
    world.turns(6)
    assert caplog.messages == [f"spool_forwarded: {BATCH + 1} dead letters; the spool is empty"]


def test_while_the_spool_is_empty_no_connection_is_kept(world):
    world.turns(3)
    assert world.kafka.closed == 0
    world.disk.put(1)
    world.turns(4)
    assert world.kafka.closed == 1


def test_who_leaves_closes_its_queue(world):
    world.forwarder.leave()
    assert world.kafka.closed == 1


_fates = st.sampled_from(["fine", "refused", "too large", "damaged", "unreadable"])


@given(
    st.lists(_fates, max_size=12), st.lists(st.sampled_from(["away", "broken", "up"]), max_size=8)
)
def test_no_letter_is_deleted_unless_it_was_forwarded_or_set_aside(fates, weather):
    world = World()
    world.disk.put(*range(len(fates)))
    for n, fate in enumerate(fates):
        name = f"order-{n}"
        if fate in {"refused", "too large"}:
            world.kafka.against[name] = TooLarge(fate) if fate == "too large" else fate
        if fate in {"damaged", "unreadable"}:
            getattr(world.disk, fate).add(name)
    for one in weather:
        world.disk.away = one == "broken"
        world.kafka.leave() if one == "away" else world.kafka.come_back()
        world.turns()
        assert {*world.disk.files, *world.kafka.taken, *world.disk.aside} == set(
            ids(*range(len(fates)))
        )
    world.disk.away = False
    world.kafka.come_back()
    world.disk.unreadable.clear()
    world.kafka.against = {k: v for k, v in world.kafka.against.items() if isinstance(v, TooLarge)}
    world.clock.sleep(KEPT_FOR)
    world.turns(4)
    assert world.disk.files == {}
    good = [n for n, fate in enumerate(fates) if fate not in {"too large", "damaged"}]
    assert sorted(world.kafka.taken) == sorted(ids(*good))
