"""What looks after lanes finds what the dead left, and keeps nobody from anything."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock, seldom_by

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.aggregates.book import Address
from angzarr.delivery import gap_monitor as lane_keeper
from angzarr.delivery.gap_monitor import (
    BATCH,
    EVERY,
    LEASE,
    LOOK_EVERY,
    RECALL_EVERY,
    REST,
    TENURE,
    LaneKeeper,
)
from angzarr.delivery.retry_until_available import MOST_TRIES
from angzarr.delivery.schedule import row_of
from angzarr.errors import (
    BrokerUnavailable,
    DeadLetterQueueUnavailable,
    DecodeError,
    StoreUnavailable,
)
from angzarr.events.event import Message
from angzarr.ordering.lane import Lane, Step, Summary, Waiting, Why
from angzarr.resilience.idempotency import RECORD_LIFE

HANDLER = "h"
GAP_AFTER = timedelta(minutes=5)
NOW = timedelta(0)


def lane(root="r1", handler=HANDLER):
    return Lane(handler, Address("order", root, ""))


class World:
    """Lanes, a broker and event books, each of which may fail."""

    def __init__(self):
        self.clock = HandClock()
        self.lanes = MemoryLanes(self.clock)
        self.facts = MemoryFactLog()
        self.published = []
        self.letters = []
        self.observed = []
        self.healed = []
        self.above_all = []
        self.closed = 0
        #: Root → what fails: publishing what is parked there, or healing its gap.
        self.broken = {}
        self.letters_away = False
        self.in_books = 0
        self.looks = []

    def keeper(self, name="k", handlers=(HANDLER,)):
        return LaneKeeper(
            lanes=self.lanes, handlers=list(handlers), publish=self.publish,
            set_aside=self.set_aside, dead_letter=self.bury, heal=self.heal,
            observe=lambda summaries, gaps: self.observed.append((summaries, gaps)),
            facts=self.facts, clock=self.clock, gap_after=GAP_AFTER, name=name, close=self.close,
            seldom=seldom_by(self.clock),
        )  # fmt: skip

    def publish(self, message):
        if error := self.broken.get(message.headers["id"].partition("-")[0]):
            raise error
        self.published.append(message.headers["id"])

    def set_aside(self, raw, error):
        if self.letters_away:
            raise DeadLetterQueueUnavailable("the dead-letter queue is away")
        self.letters.append((raw, error))

    def bury(self, message, error):
        if self.letters_away:
            raise DeadLetterQueueUnavailable("the dead-letter queue is away")
        self.letters.append((message.headers["id"], error))
        return f"letter of {message.headers['id']}"

    def heal(self, gap, most, /, *, above_all):
        if error := self.broken.get(gap.lane.address.root):
            raise error
        self.healed.append((gap.lane.address.root, gap.missing))
        self.above_all.append(above_all)
        return min(most, self.in_books)

    def close(self):
        self.closed += 1

    def park(self, sequence, root="r1", text=None, handler=HANDLER):
        message = Message(
            body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
            headers={"id": f"{root}-{sequence}", "task": handler}, queue="q",
        )  # fmt: skip
        self.lanes.park(
            Waiting(
                lane=lane(root, handler), sequence=sequence, why=Why.EARLY,
                since=self.clock.now(), event_id=f"e{sequence}", event_type="Placed",
                text=row_of(message).text if text is None else text,
            ),
            10**6,
        )  # fmt: skip

    def move(self, *sequences, root="r1", handler=HANDLER):
        for n in sequences:
            self.lanes.move(Step(lane(root, handler), n, f"e{n}", "Placed", None, self.clock.now()))

    def waiting(self):
        return [(one.lane.address.root, one.sequence) for one in self.lanes.waiting(HANDLER)]


@pytest.fixture
def world():
    return World()


# -- what the dead left ------------------------------------------------------------------------


def test_what_somebody_moved_a_lane_to_and_did_not_publish_comes_and_is_forgotten(world):
    for n in (1, 2):
        world.park(n)
    world.move(0)
    assert world.keeper().turn() == EVERY
    assert (world.published, world.waiting()) == (["r1-1"], [("r1", 2)])
    world.keeper().turn()
    assert world.published == ["r1-1"]


def test_what_waits_for_its_turn_is_left_where_it_is(world):
    world.park(5)
    world.keeper().turn()
    assert (world.published, world.waiting()) == ([], [("r1", 5)])


def test_a_full_batch_is_followed_by_the_next_one_at_once(world):
    for number in range(BATCH + 1):
        world.park(1, root=f"r{number}")
        world.move(0, root=f"r{number}")
    keeper = world.keeper()
    assert keeper.turn() == NOW
    assert len(world.published) == BATCH
    assert keeper.turn() == EVERY
    assert len(set(world.published)) == BATCH + 1


def test_what_nobody_can_read_becomes_a_letter_and_keeps_no_other(world, caplog):
    for root, text in (("r1", "{"), ("r2", "\udc80"), ("r3", None)):
        world.park(1, root, text)
        world.move(0, root=root)
    world.keeper().turn()
    assert [raw for raw, _ in world.letters] == [b"{", b"\xed\xb2\x80"]
    assert all(isinstance(error, DecodeError) for _, error in world.letters)
    assert (world.published, world.waiting()) == (["r3-1"], [])
    assert "parked_unreadable: event e1 of order/r1 for h is a dead letter now" in caplog.text


def test_what_cannot_be_made_a_letter_yet_is_kept_and_keeps_no_other(world):
    for root, text in (("r1", "{"), ("r2", None)):
        world.park(1, root, text)
        world.move(0, root=root)
    world.letters_away = True
    keeper = world.keeper()
    assert keeper.turn() == EVERY
    assert (world.published, world.waiting()) == (["r2-1"], [("r1", 1)])
    world.letters_away = False
    world.clock.sleep(LEASE)
    keeper.turn()
    assert (len(world.letters), world.waiting()) == (1, [])


def test_what_the_broker_refuses_keeps_no_other(world, caplog):
    for root in ("r1", "r2"):
        world.park(1, root)
        world.move(0, root=root)
    world.broken["r1"] = BrokerUnavailable("there is no such queue", refused=True)
    keeper = world.keeper()
    assert keeper.turn() == EVERY
    assert (world.published, world.waiting()) == (["r2-1"], [("r1", 1)])
    assert "lanes_not_kept: trying again: there is no such queue" in caplog.text
    world.broken.clear()
    world.clock.sleep(LEASE)
    keeper.turn()
    assert (world.published, world.waiting()) == (["r2-1", "r1-1"], [])


def tried(world, keeper, times):
    for _ in range(times):
        keeper.turn()
        world.clock.sleep(max(LEASE, TENURE))


NEVER = [
    BrokerUnavailable("404, no exchange", refused=True),
    BrokerUnavailable("it is larger than what the broker takes", refused=True),
    KeyError("ours"), TypeError("ours"),
]  # fmt: skip


@pytest.mark.parametrize("error", NEVER, ids=repr)
def test_what_can_never_be_sent_is_a_letter_at_which_its_lane_stands(world, caplog, error):
    for root in ("r1", "r2"):
        for n in (1, 2):
            world.park(n, root)
        world.move(0, root=root)
    world.broken["r1"] = error
    keeper = world.keeper()
    tried(world, keeper, MOST_TRIES - 1)
    assert (world.letters, len(world.waiting())) == ([], 3)
    tried(world, keeper, 1)
    assert world.letters == [("r1-1", error)]
    assert world.published == ["r2-1"], "it kept no other"
    (dead, behind) = world.lanes.waiting(HANDLER, address=lane("r1").address)
    assert (dead.sequence, dead.why, dead.letter_id) == (1, Why.DEAD_LETTER, "letter of r1-1")
    assert (behind.sequence, behind.why) == (2, Why.EARLY)
    assert world.lanes.behind(["letter of r1-1"]) == {"letter of r1-1": 1}
    assert "parked_given_up: event e1 of order/r1 for h is a dead letter now" in caplog.text
    tried(world, keeper, 2 * MOST_TRIES)
    assert len(world.letters) == 1
    assert "r1" not in dict(world.healed), "a letter is no gap"
    world.broken.clear()
    world.move(1)  # a person skipped it
    keeper.turn()
    assert world.published == ["r2-1", "r1-2"]


PASSES = [
    BrokerUnavailable("its queue is full", refused=True, passing=True),
    BrokerUnavailable("away"), MemoryError(), RuntimeError("can't start new thread"),
]  # fmt: skip


@pytest.mark.parametrize("error", PASSES, ids=repr)
def test_what_may_pass_makes_no_letter_of_what_is_parked(world, error):
    world.park(1)
    world.move(0)
    world.broken["r1"] = error
    keeper = world.keeper()
    tried(world, keeper, 3 * MOST_TRIES)
    assert world.letters == []
    world.broken.clear()
    tried(world, keeper, 1)
    assert (world.published, world.waiting()) == (["r1-1"], [])


def test_what_cannot_even_be_made_a_letter_is_tried_on_and_is_not_lost(world):
    world.park(1)
    world.move(0)
    world.broken["r1"], world.letters_away = KeyError("ours"), True
    keeper = world.keeper()
    tried(world, keeper, 2 * MOST_TRIES)
    assert (world.letters, world.waiting()) == ([], [("r1", 1)])
    world.letters_away = False
    tried(world, keeper, 1)
    assert [what for what, _ in world.letters] == ["r1-1"]


def test_while_the_broker_is_away_it_is_asked_once_a_turn(world):
    for root in ("r1", "r2"):
        world.park(1, root)
        world.move(0, root=root)
    asked = []
    world.publish = lambda message: (asked.append(message), world.fail("the broker is away"))
    world.fail = lambda why: (_ for _ in ()).throw(BrokerUnavailable(why))
    assert world.keeper().turn() == EVERY
    assert len(asked) == 1
    assert len(world.waiting()) == 2


@pytest.mark.parametrize("verb", ["on_duty", "due", "gaps", "summaries", "released", "forget_ends"])
@pytest.mark.parametrize("error", [StoreUnavailable("away"), ZeroDivisionError()], ids=repr)
def test_whatever_fails_it_tries_again_and_says_so_once_a_minute(world, caplog, verb, error):
    world.park(1)
    world.move(0)
    keeper = world.keeper()
    fine, failing = getattr(world.lanes, verb), [True]

    def fails(*arguments, **options):
        if failing:
            raise error
        return fine(*arguments, **options)

    setattr(world.lanes, verb, fails)
    with caplog.at_level(logging.ERROR, "angzarr.ordering"):
        for _ in range(3):
            assert keeper.turn() == EVERY
    assert [line[:14] for line in caplog.messages] == ["lanes_not_kept"]
    failing.clear()
    world.clock.sleep(max(LEASE, LOOK_EVERY))
    keeper.turn()
    assert (set(world.published), world.waiting()) == ({"r1-1"}, [])
    assert world.observed


# -- duty --------------------------------------------------------------------------------------


def test_one_of_several_is_on_duty_until_it_says_no_more(world):
    first, second = world.keeper("a"), world.keeper("b")
    for keeper in (first, second):
        keeper.turn()
    assert len(world.observed) == 1
    world.park(1)
    world.move(0)
    second.turn()
    assert world.published == []
    world.clock.sleep(TENURE)
    second.turn()
    assert world.published == ["r1-1"]
    assert first.turn() == EVERY
    assert len(world.observed) == 2


def test_a_keeper_of_other_handlers_is_on_duty_beside_it(world):
    world.keeper("a").turn()
    world.park(1, handler="other")
    world.move(0, handler="other")
    world.keeper("b", ["other"]).turn()
    assert world.published == ["r1-1"]


def test_it_closes_what_it_opened_when_it_leaves(world):
    world.keeper().leave()
    assert world.closed == 1


# -- what is missing ---------------------------------------------------------------------------


def test_a_gap_is_no_gap_before_its_time(world):
    world.park(1)
    world.clock.sleep(GAP_AFTER)
    keeper = world.keeper()
    keeper.turn()
    assert world.healed == []
    world.clock.sleep(LOOK_EVERY)
    keeper.turn()
    assert world.healed == [("r1", 0)]


def missing(world, *roots):
    for root in roots or ("r1",):
        world.park(3, root)
    world.clock.sleep(GAP_AFTER * 2)
    return world.keeper()


def test_what_lanes_have_passed_by_is_asked_for_seldom_and_told(world, caplog, monkeypatch):
    asked = []
    monkeypatch.setattr(world.lanes, "recall", lambda *given: asked.append(given) or 2)
    keeper = world.keeper()
    for _ in range(2):
        keeper.turn()
    assert asked == [([HANDLER], BATCH)]
    assert "parked_recalled: 2 lanes had passed by what was parked there" in caplog.text
    spent(world, keeper, RECALL_EVERY - LOOK_EVERY)
    assert len(asked) == 1
    spent(world, keeper, LOOK_EVERY)
    assert len(asked) == 2


def spent(world, keeper, span):
    """Let *keeper* look as often as it does in *span*."""
    for _ in range(int(span / LOOK_EVERY)):
        world.clock.sleep(LOOK_EVERY)
        keeper.turn()


def told(caplog, what):
    return [line for line in caplog.messages if line.startswith(what)]


def test_ends_of_steps_are_forgotten_with_the_claims_and_no_earlier(world, monkeypatch):
    monkeypatch.setattr(lane_keeper, "ENDS", 2)
    steps = [
        Step(lane(f"r{n}"), 0, f"e{n}", "Placed", None, world.clock.now(), "t") for n in range(5)
    ]
    for step in steps:
        world.lanes.move(step)
    keeper, began = world.keeper(), world.clock.now()

    def known():
        return sum(world.lanes.ended(step, began) is not None for step in steps)

    world.clock.sleep(RECORD_LIFE)
    keeper.turn()
    assert known() == 5
    world.clock.sleep(LOOK_EVERY)
    keeper.turn()
    assert known() == 0, "one look forgets more than one batch"


def test_one_look_forgets_so_many_ends_and_no_more(world, monkeypatch):
    monkeypatch.setattr(lane_keeper, "ENDS", 2)
    monkeypatch.setattr(lane_keeper, "MOST_ENDS", 4)
    asked = []
    monkeypatch.setattr(world.lanes, "forget_ends", lambda _at, most: asked.append(most) or most)
    world.keeper().turn()
    assert asked == [2, 2]


def test_what_the_books_have_is_sent_again_more_and_more_seldom(world, caplog):
    world.in_books = 3
    keeper = missing(world)
    keeper.turn()
    assert (world.healed, world.above_all) == ([("r1", 0)], [False])
    spent(world, keeper, GAP_AFTER - LOOK_EVERY)
    assert len(world.healed) == 1
    spent(world, keeper, LOOK_EVERY)
    assert world.above_all == [False, False]
    spent(world, keeper, REST - LOOK_EVERY)
    assert len(world.healed) == 2
    assert (told(caplog, "gap: "), world.facts.read()) == ([], []), "it may be on its way"
    spent(world, keeper, LOOK_EVERY)
    assert world.above_all == [False, False, True], "now it may have been lost"
    spent(world, keeper, 3 * REST)
    assert world.above_all[3:] == [True] * 3
    assert "gap_sent_again: 3 events from sequence 0 of order/r1 for h, time 3" in caplog.text
    first, *_ = told(caplog, "gap: ")
    assert (
        "the event of sequence 0 of order/r1 for h is missing and was sent again 4 times" in first
    )
    (fact,) = world.facts.read()
    assert fact.subtype == "sequence_gap", "sent again it did not come, and people must look"


def test_a_keeper_that_takes_over_does_not_send_what_another_one_sent(world):
    world.in_books = 3
    missing(world).turn()
    world.clock.sleep(LOOK_EVERY)
    world.keeper("another").turn()
    world.keeper("of others, too", [HANDLER, "other"]).turn()
    assert world.healed == [("r1", 0)]


def test_what_could_not_be_sent_does_not_count_as_sent(world, caplog):
    world.in_books = 3
    keeper = missing(world)
    world.broken["r1"] = BrokerUnavailable("the broker is away")
    spent(world, keeper, 4 * REST)
    world.broken.clear()
    spent(world, keeper, GAP_AFTER)
    assert world.above_all == [False]
    assert (told(caplog, "gap: "), world.facts.read()) == ([], [])


def test_a_lane_that_moved_begins_anew(world):
    world.in_books = 1
    keeper = missing(world)
    spent(world, keeper, GAP_AFTER + 2 * REST)
    assert True in world.above_all
    world.above_all.clear()
    world.move(0)
    spent(world, keeper, 2 * GAP_AFTER)
    assert world.healed[-1] == ("r1", 1)
    assert world.above_all[0] is False


def test_one_look_sends_so_much_and_no_more(world, monkeypatch):
    monkeypatch.setattr(lane_keeper, "MOST", 5)
    world.in_books = 3
    keeper = missing(world, "r1", "r2", "r3")
    keeper.turn()
    assert [root for root, _ in world.healed] == ["r1", "r2"]
    spent(world, keeper, LOOK_EVERY)
    assert [root for root, _ in world.healed] == ["r1", "r2", "r3"]


def test_who_is_not_on_duty_any_more_sends_nothing(world):
    world.in_books = 3
    keeper = missing(world, "r1", "r2")
    heal = world.heal

    def slowly(gap, most, /, *, above_all):
        world.clock.sleep(TENURE)
        assert world.lanes.on_duty("another", TENURE, of=[HANDLER])
        return heal(gap, most, above_all=above_all)

    world.heal = slowly
    keeper = world.keeper()
    keeper.turn()
    assert len(world.healed) == 1


def test_what_nobody_has_is_reported_and_one_fact_however_often_it_is_found(world, caplog):
    keeper = missing(world)
    keeper.turn()
    spent(world, keeper, GAP_AFTER + REST)
    assert len(world.healed) == 3
    (fact,) = world.facts.read()
    assert (fact.subtype, fact.entity_id, fact.tool_id) == ("sequence_gap", "r1", "h")
    assert fact.data == {
        "domain": "order", "edition": "", "missing": 0, "waiting": 1, "first_waiting": 3,
    }  # fmt: skip
    lines = told(caplog, "gap: ")
    assert len(lines) == 3
    assert (
        "the event of sequence 0 of order/r1 for h is missing and is in no event book,"
        " and 1 later ones wait"
    ) in lines[0]
    assert "`angzarr projection skip h order/r1 --gap`" in lines[0]


def test_a_letter_is_no_gap_and_a_retry_is_one_when_it_is_overdue(world):
    early = replace(world.lanes.waiting(HANDLER)[0]) if world.waiting() else None
    assert early is None
    world.park(2, "lettered")
    world.park(2, "retrying")
    at = world.clock.now()
    known = {"since": at, "event_id": "e0", "event_type": "Placed", "sequence": 0}
    world.lanes.note(Waiting(lane=lane("lettered"), why=Why.DEAD_LETTER, letter_id="l", **known))
    due_at = at + 2 * GAP_AFTER
    world.lanes.note(Waiting(lane=lane("retrying"), why=Why.RETRYING, due_at=due_at, **known))
    keeper = world.keeper()
    world.clock.sleep(2 * GAP_AFTER)
    keeper.turn()
    assert world.healed == []
    world.clock.sleep(2 * GAP_AFTER)
    keeper.turn()
    assert world.healed == [("retrying", 0)]


def test_a_gap_that_cannot_be_looked_up_keeps_no_other(world, caplog):
    world.broken["r1"] = DecodeError("a book that nobody can read")
    keeper = missing(world, "r1", "r2")
    assert keeper.turn() == EVERY
    assert world.healed == [("r2", 0)]
    assert "a book that nobody can read" in caplog.text
    assert world.observed


@pytest.mark.parametrize(
    "error", [DecodeError("a book that nobody can read"), BrokerUnavailable("no", refused=True)]
)
def test_a_gap_that_cannot_be_mended_is_reported_and_tried_more_and_more_seldom(
    world, caplog, error
):
    world.broken["r1"] = error
    keeper = missing(world)
    keeper.turn()
    spent(world, keeper, GAP_AFTER + REST)
    lines = told(caplog, "gap: ")
    assert len(lines) == 3
    assert "is missing and could not be sent again, and 1 later ones wait" in lines[0]
    assert len(world.facts.read()) == 1
    world.broken.clear()
    spent(world, keeper, REST)
    assert world.above_all == [True]


def test_gaps_that_nobody_mends_keep_no_later_one(world):
    roots = [f"r{number:03}" for number in range(BATCH + 1)]
    keeper = missing(world, *roots)
    for _ in range(2):
        keeper.turn()
        world.clock.sleep(LOOK_EVERY)
    assert sorted(world.healed) == [(root, 0) for root in roots]


@pytest.mark.parametrize("verb", ["recall", "gaps"])
def test_a_question_that_takes_too_long_keeps_no_other_from_being_asked(world, caplog, verb):
    keeper = missing(world)

    def fails(*_):
        raise StoreUnavailable("canceling statement due to statement timeout")

    setattr(world.lanes, verb, fails)
    assert keeper.turn() == EVERY
    assert world.observed
    assert bool(world.healed) == (verb == "recall")
    assert "canceling statement" in caplog.text


def test_what_waits_is_counted_each_time_that_it_looks(world):
    keeper = missing(world)
    keeper.turn()
    keeper.turn()
    ((summaries, gaps),) = world.observed
    assert summaries == [Summary(HANDLER, 1, 1, 0, summaries[0].oldest)]
    assert [gap.missing for gap in gaps] == [0]
