"""What is due is published, whatever goes wrong, and one bad row keeps no other."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.adapters.memory.schedule import MemorySchedule
from angzarr.delivery import schedule_mover as mover_module
from angzarr.delivery.schedule import REFUSED_FOR, Row, row_of
from angzarr.delivery.schedule_mover import (
    BATCH,
    LEASE,
    LONGEST_WAIT,
    LOOK_EVERY,
    MOST_REFUSALS,
    Mover,
)
from angzarr.errors import BrokerUnavailable, DecodeError, StoreUnavailable
from angzarr.events.event import Message

SECOND = timedelta(seconds=1)


class Refused(BrokerUnavailable):
    """The broker says no to one message."""


class Full(Refused):
    """Its queue is full."""


def message(name, queue="q"):
    return Message(
        body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": name, "task": "t"}, queue=queue,
    )  # fmt: skip


class World:
    """A schedule, a broker and a clock, each of which may fail."""

    def __init__(self):
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.rows = MemorySchedule(self)
        self.published = []
        self.letters = []
        self.broker = {}  # name of a message → what publishing it raises
        self.away = set()  # verbs of the schedule that fail
        self.takes_per_message = timedelta(0)
        self.stop_after = 10**9
        self.letters_away = False

    def now(self):
        return self.time

    def put(self, *names_, wait=timedelta(0)):
        for name in names_:
            self.rows.put(message(name), self.time + wait)

    # -- the port, with faults ------------------------------------------------------------------

    def __getattr__(self, verb):
        def call(*args):
            if f"{verb} unheard" in self.away:
                getattr(self.rows, verb)(*args)
            if self.away & {verb, f"{verb} unheard", "all"}:
                raise StoreUnavailable("the store is away")
            return getattr(self.rows, verb)(*args)

        return call

    # -- the mover's other hands -----------------------------------------------------------------

    def publish(self, copy):
        self.time += self.takes_per_message
        if error := self.broker.get(copy.id) or self.broker.get("*"):
            raise error
        self.published.append(copy.id)

    def set_aside(self, raw, error):
        if self.letters_away:
            raise OSError("the dead-letter queue is away")
        self.letters.append((raw, error))

    def bury(self, copy, error):
        if self.letters_away:
            raise OSError("the dead-letter queue is away")
        self.letters.append((copy.id, error))

    def mover(self):
        return Mover(
            due=self, publish=self.publish, refuses=lambda error: isinstance(error, Refused),
            for_good=lambda error: not isinstance(error, Full),
            set_aside=self.set_aside, dead_letter=self.bury, chance=lambda: 0.5,
            stopping=lambda: len(self.published) >= self.stop_after,
            monotonic=lambda: self.time.timestamp(),  # noqa: PLW0108 - the time moves on
        )  # fmt: skip

    def left(self):
        return len(self.rows._waiting)


@pytest.fixture
def world():
    return World()


def turns(world, mover, number, pause=timedelta(0)):
    waits = []
    for _ in range(number):
        waits.append(mover.turn())
        world.time += pause
    return waits


def test_what_is_due_is_published_and_then_gone(world):
    world.put("a", "b")
    world.put("later", wait=SECOND)
    mover = world.mover()
    mover.turn()
    assert world.published == ["a", "b"]
    assert world.left() == 1
    turns(world, mover, 3)
    assert world.published == ["a", "b"]


def test_it_sleeps_until_the_next_is_due_and_never_long(world):
    mover = world.mover()
    assert mover.turn() <= LOOK_EVERY, "others may put at any time"
    world.put("soon", wait=timedelta(milliseconds=70))
    assert mover.turn() == timedelta(milliseconds=70)
    world.put("now")
    world.put("week", wait=timedelta(days=7))
    world.time += SECOND
    mover.turn()
    assert timedelta(0) < mover.turn() <= LOOK_EVERY


def test_a_flood_is_moved_in_batches_without_a_pause(world):
    world.put(*(f"m{n}" for n in range(3 * BATCH)))
    mover = world.mover()
    assert turns(world, mover, 3)[:2] == [timedelta(0)] * 2
    assert len(world.published) == 3 * BATCH
    assert world.left() == 0


def test_two_movers_publish_nothing_twice(world):
    world.put(*(f"m{n}" for n in range(5 * BATCH)))
    first, second = world.mover(), world.mover()
    for _ in range(5):
        first.turn()
        second.turn()
    assert len(world.published) == len(set(world.published)) == 5 * BATCH


def test_a_mover_that_died_with_rows_in_hand_delays_them_by_its_lease(world):
    world.put("a")
    world.rows.take("dead", 10, LEASE)
    mover = world.mover()
    mover.turn()
    assert world.published == []
    world.time += LEASE
    mover.turn()
    assert world.published == ["a"]


def test_a_stop_gives_back_what_is_not_published(world):
    world.put("a", "b", "c")
    world.stop_after = 1
    world.mover().turn()
    assert world.published == ["a"]
    world.stop_after = 10**9
    world.mover().turn()
    assert world.published == ["a", "b", "c"]


def test_who_is_slow_gives_back_before_another_may_take_it(world):
    world.put("a", "b", "c")
    world.takes_per_message = LEASE / 2
    slow, quick = world.mover(), world.mover()
    slow.turn()
    assert world.time.timestamp() - datetime(2026, 1, 1, tzinfo=UTC).timestamp() <= LEASE.seconds
    world.takes_per_message = timedelta(0)
    quick.turn()
    assert sorted(world.published) == ["a", "b", "c"]


# -- the broker --------------------------------------------------------------------------------


def test_a_broker_that_is_away_loses_nothing_and_is_asked_ever_less(world, caplog):
    world.put("a", "b", "c")
    world.broker["*"] = BrokerUnavailable("away")
    mover = world.mover()
    waits = turns(world, mover, 12, pause=SECOND)
    assert waits == sorted(waits)
    assert waits[0] < SECOND
    assert waits[-1] == LONGEST_WAIT
    assert [r.levelno for r in caplog.records] == [logging.ERROR], "once a minute"
    world.broker.clear()
    turns(world, mover, 2, pause=SECOND)
    assert sorted(world.published) == ["a", "b", "c"]


@pytest.mark.parametrize("error", [Refused("too large"), TypeError("cannot be encoded")])
def test_a_row_that_can_never_be_published_keeps_no_other_and_is_kept(world, caplog, error):
    world.put("bad", *(f"m{n}" for n in range(2 * BATCH)))
    world.broker["bad"] = error
    mover = world.mover()
    turns(world, mover, 4)
    assert len(world.published) == 2 * BATCH
    assert world.left() == 1
    assert "row t:bad:0:0:" in caplog.text
    lines = len(caplog.records)
    turns(world, mover, 4, pause=timedelta(seconds=5))
    assert len(caplog.records) == lines, "once a minute"
    world.broker.clear()
    world.time += REFUSED_FOR
    mover.turn()
    assert world.published[-1] == "bad"


def test_a_row_at_which_the_broker_always_goes_away_keeps_no_other(world):
    world.put("bad")
    world.time += SECOND
    world.put("a", "b")
    world.broker["bad"] = BrokerUnavailable("the connection broke")
    turns(world, world.mover(), 2)
    assert world.published == ["a", "b"]
    assert world.left() == 1


def test_when_all_are_refused_it_pauses(world):
    world.put(*(f"m{n}" for n in range(3 * BATCH)))
    world.broker["*"] = Refused("out of memory")
    waits = turns(world, world.mover(), 3)
    assert timedelta(0) < waits[0] < waits[1] < waits[2]
    assert world.left() == 3 * BATCH


# -- the schedule ------------------------------------------------------------------------------


def test_a_schedule_that_is_away_is_asked_ever_less_and_moves_on_afterwards(world, caplog):
    world.put("a")
    world.away.add("all")
    mover = world.mover()
    waits = turns(world, mover, 10, pause=SECOND)
    assert waits[-1] == LONGEST_WAIT
    assert len(caplog.records) == 1
    world.away.clear()
    mover.turn()
    assert world.published == ["a"]


def test_a_take_whose_reply_was_lost_delays_nothing(world):
    world.put("a")
    world.away.add("take unheard")
    mover = world.mover()
    mover.turn()
    world.away.clear()
    mover.turn()
    assert world.published == ["a"]


@pytest.mark.parametrize("fault", ["done", "done unheard"])
def test_what_could_not_be_deleted_is_deleted_later_and_not_published_again(world, fault):
    world.put("a", "b")
    world.away.add(fault)
    mover = world.mover()
    turns(world, mover, 3)
    assert world.published == ["a", "b"]
    world.away.clear()
    mover.turn()
    assert world.published == ["a", "b"]
    assert world.left() == 0


def test_a_copy_put_again_while_its_row_is_published_comes_again(world):
    world.put("a")
    world.away.add("done")
    mover = world.mover()
    mover.turn()
    world.put("a", wait=SECOND)  # the worker that got it postpones it, on the same hop
    world.away.clear()
    turns(world, mover, 2, pause=SECOND)
    mover.turn()
    assert world.published == ["a", "a"]


def test_what_is_left_to_tell_is_told_at_the_end_or_comes_back_by_itself(world, caplog):
    world.put("a")
    world.away.add("done")
    mover = world.mover()
    mover.turn()
    mover.leave()
    assert "schedule_not_told" in caplog.text
    world.away.clear()
    mover.leave()
    assert world.left() == 0


# -- rows that nobody can read -----------------------------------------------------------------


def test_a_row_that_cannot_be_read_is_a_letter_with_its_bytes(world):
    world.put("a")
    (kept,) = world.rows._waiting.values()
    kept.row = Row(kept.row.id, '{"body": "cut off')
    world.put("b")
    world.mover().turn()
    assert world.published == ["b"]
    assert [raw for raw, _ in world.letters] == [b'{"body": "cut off']
    assert world.left() == 0


def test_it_is_kept_until_it_is_a_letter(world):
    world.put("a")
    (kept,) = world.rows._waiting.values()
    kept.row = row_of(message("a"))._replace(text="[]")
    world.letters_away = True
    mover = world.mover()
    mover.turn()
    assert world.left() == 1
    world.letters_away = False
    world.time += REFUSED_FOR
    mover.turn()
    assert world.left() == 0
    assert len(world.letters) == 1


FOR_EVER = [Refused("no queue takes it"), KeyError("a-queue"), TypeError("ours")]


@pytest.mark.parametrize("error", FOR_EVER, ids=repr)
def test_what_is_refused_for_ever_is_a_letter_in_the_end_and_keeps_no_other(world, error):
    world.broker["a"] = error
    world.put("a", "b")
    mover = world.mover()
    turns(world, mover, 3 * MOST_REFUSALS, REFUSED_FOR / 2)
    assert world.letters == [("a", error)]
    assert world.published == ["b"]
    assert world.left() == 0


@pytest.mark.parametrize("error", FOR_EVER, ids=repr)
def test_what_is_refused_stays_until_its_letter_is_put(world, error):
    world.broker["a"], world.letters_away = error, True
    world.put("a")
    mover = world.mover()
    turns(world, mover, 3 * MOST_REFUSALS, REFUSED_FOR)
    assert world.left() == 1
    world.letters_away = False
    turns(world, mover, 2, REFUSED_FOR)
    assert world.letters == [("a", error)]
    assert world.left() == 0


def test_a_message_whose_queue_is_full_waits_for_room_and_is_no_letter(world):
    world.broker["a"] = Full("full")
    world.put("a")
    mover = world.mover()
    turns(world, mover, 3 * MOST_REFUSALS, REFUSED_FOR)
    assert (world.letters, world.left()) == ([], 1)
    world.broker.clear()
    turns(world, mover, 2, REFUSED_FOR)
    assert world.published == ["a"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=repr)
def test_what_this_machine_lacks_buries_no_row_however_long(world, error):
    world.broker["*"] = error
    world.put("a", "b")
    mover = world.mover()
    turns(world, mover, 3 * MOST_REFUSALS, REFUSED_FOR)
    assert (world.letters, world.left()) == ([], 2)
    world.broker.clear()
    turns(world, mover, 2, REFUSED_FOR)
    assert sorted(world.published) == ["a", "b"]


def test_a_row_is_not_unreadable_because_memory_ran_out_while_it_was_read(world, monkeypatch):
    def fail(_text):
        raise DecodeError("no JSON") from MemoryError()

    world.put("a")
    mover = world.mover()
    with monkeypatch.context() as scarce:
        scarce.setattr(mover_module, "read_row", fail)
        turns(world, mover, 3, REFUSED_FOR)
    assert (world.letters, world.left()) == ([], 1)
    turns(world, mover, 2, REFUSED_FOR)
    assert world.published == ["a"]
