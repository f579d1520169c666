"""What an order adds to the road: who waits in his lane, who moves it, and in which order it is
made true.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.aggregates.book import Address
from angzarr.dead_letters.letter import Reason
from angzarr.delivery import schedule as schedule_row
from angzarr.delivery.delivery import (
    DeadLettered,
    Duplicate,
    Handled,
    Parked,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
)
from angzarr.delivery.ordering import (
    ASKED_AGAIN,
    FULL_WAIT,
    NEAR,
    NOTED_FROM,
    NOTED_FROM_HOP,
    SHUT_WAIT,
)
from angzarr.delivery.schedule import FURTHEST
from angzarr.errors import (
    BrokerUnavailable,
    GivenBack,
    GiveUp,
    Postpone,
    RevokedError,
    Skip,
    StoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.ordering.lane import (
    Elsewhere,
    Lane,
    Moved,
    Order,
    Place,
    SkipCause,
    Step,
    StepEnd,
    Waiting,
    Why,
)
from angzarr.ordering.lanes import Looked
from angzarr.resilience.backoff import Jitter, Policy
from angzarr.resilience.claim_memory import LEASE
from angzarr.resilience.idempotency import RECORD_LIFE, key_for

DOMAIN, ROOT, TYPE = "order", "r1", "Placed"
LANE = Lane("h", Address(DOMAIN, ROOT, ""))
SECOND = timedelta(seconds=1)


class Lanes(MemoryLanes):
    """Lanes that write into the journal what they did, and may be away."""

    def __init__(self, world):
        super().__init__(world.clock)
        self.world = world
        self.looks = 0
        self.away = 0
        self.meanwhile = lambda: None

    def look(self, lane, /):
        self.looks += 1
        if self.away:
            self.away -= 1
            raise StoreUnavailable("the lanes are away")
        return super().look(lane)

    def _said(self, what, answer):
        self.world.journal.entries.append(what)
        return answer

    def move(self, step, /):
        return self._said("move", super().move(step))

    def park(self, early, most, /):
        self.meanwhile()
        return self._said("park", super().park(early, most))

    def note(self, waiting, /, *, claimed=True):
        return self._said("note", super().note(waiting, claimed=claimed))

    def released(self, early, /):
        return self._said("released", super().released(early))


class Leaving(Looked):
    """Tells whether it was left, by its run or without one."""

    left = False

    def run(self, step, work, /):
        self.left = True
        return super().run(step, work)

    def close(self):
        self.left = True


class Ordered:
    """A world with one ordered handler, and messages of its events."""

    def __init__(self, world):
        self.world = world
        self.lanes = world.lanes = Lanes(world)
        self.ran = []
        self.before = lambda: None
        self.fails = {}

    def register(self, *, moves=False, policy=None):
        order = Order(domains=frozenset({DOMAIN}), types=frozenset({TYPE}), moves=moves)

        def handle(data, context):
            self.before()
            self.ran.append(data)
            if error := self.fails.get(data):
                raise error
            if moves:
                context.turn.run(lambda _connection: None)

        self.world.handler(handle, order=order, policy=policy)
        return self

    def message(self, n, event_id=None, **headers):
        said = {
            names.EVENT_TYPE: TYPE, names.DOMAIN: DOMAIN, names.ROOT: ROOT, names.SEQUENCE: n,
            **headers,
        }  # fmt: skip
        return self.world.message(n, event_id=event_id or f"e{n}", **said)

    def take(self, n, failed=None, **headers):
        delivery = self.world.delivery(self.message(n, **headers))
        return self.world.road().take(delivery, failed)

    def take_copy(self):
        """Deliver the copy that was published last."""
        return self.world.take(self.world.last_copy())

    def waiting(self):
        return {one.sequence: one for one in self.lanes.waiting("h")}

    def parked_copy(self, n):
        return schedule_row.read_row(self.waiting()[n].text)

    def since(self, number):
        """Return what was written into the journal since it had *number* entries."""
        return self.world.journal.entries[number:]


@pytest.fixture
def ordered(world):
    return Ordered(world).register()


@pytest.fixture
def moving(world):
    return Ordered(world).register(moves=True)


# -- whose turn it is --------------------------------------------------------------------------


def test_events_in_sequence_are_run_and_move_their_lane(ordered):
    assert [type(ordered.take(n)) for n in range(3)] == [Handled] * 3
    assert ordered.ran == [0, 1, 2]
    assert ordered.lanes.look(LANE) == Place(3)
    assert ordered.lanes.checkpoints.get("h").events_processed == 3


def test_an_aggregate_begins_with_the_sequence_that_its_handler_names(world):
    lane = Ordered(world)
    order = Order(domains=frozenset({DOMAIN}), types=frozenset({TYPE}), first=1)
    world.handler(lambda data, _context: lane.ran.append(data), order=order)
    outcomes = [lane.take(n) for n in (0, 1, 2)]
    assert [type(one) for one in outcomes] == [DeadLettered, Handled, Handled]
    assert outcomes[0].letter.reason is Reason.UNDELIVERABLE


def test_what_its_lane_is_past_was_handled_and_completes_its_claim(ordered):
    for n in range(2):
        ordered.take(n)
    again = ordered.take(0, event_id="another id")
    assert again == Duplicate(kept=False, claimed=True)
    assert [fact.subtype for fact in ordered.world.journal.facts] == ["handled"] * 2 + ["duplicate"]
    assert ordered.ran == [0, 1]
    assert ordered.world.journal.entries[-1] == "complete"


def test_an_event_that_was_completed_asks_its_lane_once(ordered):
    ordered.take(0)
    looks = ordered.lanes.looks
    assert isinstance(ordered.take(0), Duplicate)
    assert ordered.lanes.looks == looks + 1, "it may have been set back"


def test_a_run_that_moved_its_lane_and_died_publishes_what_follows_after_all(moving):
    moving.lanes.run(Step(LANE, 0, "e0", TYPE, None, moving.world.clock.now()), lambda _: None)
    outcome = moving.take(0)
    assert outcome == Duplicate(kept=True, claimed=True)
    assert moving.world.journal.followed == [("e0", None)]
    assert moving.world.journal.entries == ["followers", "fact", "complete"], (
        "its keeper lets come what follows"
    )


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("skipped", [None, SkipCause("not ours", "s-1")])
def test_what_died_between_its_lane_and_its_claim_is_told_by_the_next_run(world, moves, skipped):
    lane = Ordered(world).register(moves=moves)
    at = world.clock.now()
    lane.lanes.move(Step(LANE, 0, "e0", TYPE, None, at, "dead", skipped))
    world.clock.sleep(SECOND)
    outcome = lane.take(0)
    end = StepEnd("dead", at, skipped)
    followed = moves and skipped is None
    assert outcome == Duplicate(
        kept=followed, claimed=True, skipped=skipped is not None, untold=end
    )
    assert bool(world.journal.followed) == followed
    (fact,) = world.journal.facts
    word = "skipped" if skipped else "handled"
    assert (fact.id, fact.subtype, fact.at) == (f"dead:{word}", word, at)
    if skipped:
        assert (fact.data["reason"], fact.data["switch_id"]) == skipped
    world.journal.facts.clear()
    assert lane.take(0) == Duplicate(kept=False, skipped=skipped is not None)
    assert [fact.subtype for fact in world.journal.facts] == ["duplicate"]
    assert lane.ran == []


@pytest.mark.parametrize("fails", [{}, {0: Skip("not ours")}])
def test_the_fact_that_is_told_late_is_the_one_that_its_run_would_have_told(ordered, fails):
    """Should that have told it after all, for its record was lost since, it is kept once."""
    ordered.fails = fails
    ordered.take(0)
    (told,) = ordered.world.journal.facts
    ordered.world.journal.facts.clear()
    key = key_for("h", "e0")
    del ordered.world.store._records[key]
    assert ordered.take(0).claimed
    assert ordered.world.journal.facts == [told]


def test_a_late_duplicate_whose_record_is_gone_is_one(ordered):
    ordered.take(0)
    ordered.world.journal.facts.clear()
    ordered.world.clock.sleep(RECORD_LIFE + SECOND)
    assert ordered.take(0) == Duplicate(kept=False, claimed=True)
    assert [fact.subtype for fact in ordered.world.journal.facts] == ["duplicate"]


def test_a_type_that_the_handler_does_not_take_moves_its_lane(ordered):
    outcome = ordered.take(0, **{names.EVENT_TYPE: "Noted"})
    assert outcome == Skipped(reason="h takes no Noted")
    assert (ordered.ran, ordered.lanes.look(LANE)) == ([], Place(1))


def test_a_skip_by_a_person_moves_the_lane_at_its_turn_only(ordered):
    skip = {names.SKIP: "the account is gone", names.REPLAY: 1}
    assert isinstance(ordered.take(1, **skip), Parked)
    ordered.take(0)
    assert ordered.take_copy() == Skipped(reason="skipped by a person: the account is gone")
    assert (ordered.ran, ordered.lanes.look(LANE)) == ([0], Place(2))


def test_what_says_no_type_is_a_letter_that_holds_up_its_lane_until_it_is_skipped(ordered):
    """Nobody can tell whether the handler takes it."""
    letter = ordered.take(0, **{names.EVENT_TYPE: None}).letter
    assert (letter.reason, ordered.waiting()[0].letter_id) == (Reason.UNDELIVERABLE, letter.id)
    skip = {names.SKIP: "nobody knows what it was", names.REPLAY: 1, names.EVENT_TYPE: None}
    assert isinstance(ordered.take(0, **skip), Skipped)
    assert (ordered.ran, ordered.lanes.look(LANE)) == ([], Place(1))


def test_a_handler_that_skips_moves_its_lane(moving):
    moving.fails[0] = Skip("not ours")
    assert isinstance(moving.take(0), Skipped)
    assert moving.lanes.look(LANE) == Place(1)


@pytest.mark.parametrize(
    "headers",
    [
        {names.ROOT: None}, {names.ROOT: ""}, {names.SEQUENCE: None}, {names.SEQUENCE: -1},
        {names.SEQUENCE: 2**32}, {names.SEQUENCE: True},
        {names.SEQUENCE: "first"}, {names.DOMAIN: "another"},
        {names.DOMAIN: None}, {names.EDITION: "\x00"}, {names.ROOT: "x" * 10_000},
        {names.EDITION: "\ud800"},
    ],
    ids=str,
)  # fmt: skip
def test_an_event_without_a_place_is_a_letter_and_moves_nothing(ordered, headers):
    outcome = ordered.take(0, **headers)
    assert outcome.letter.reason is Reason.UNDELIVERABLE
    assert (ordered.ran, ordered.lanes.look(LANE), ordered.waiting()) == ([], Place(0), {})


# -- who comes early ---------------------------------------------------------------------------


def test_what_comes_early_is_kept_in_its_lane_one_hop_on_and_its_claim_waits(ordered):
    outcome = ordered.take(7, **{names.HOP: 2})
    assert isinstance(outcome, Parked)
    assert outcome.next_sequence == 0
    assert (ordered.ran, ordered.world.journal.copies) == ([], [])
    copy = ordered.parked_copy(7)
    assert copy.headers[names.HOP] == 3
    assert copy.headers[names.ATTEMPT] == 1, "to wait uses no attempt"
    assert json.loads(copy.body)[0] == [7]
    assert ordered.world.journal.entries == ["park", "fact", "wait"]
    assert ordered.take(7, **{names.HOP: 2}) == Superseded()


def test_a_kill_behind_its_parking_loses_no_fact(ordered, monkeypatch):
    """The parked copy may be published and run before the claim has ended."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ordered.world.store, "settle", killed)
    with pytest.raises(KeyboardInterrupt):
        ordered.take(7)
    assert [*ordered.waiting()] == [7]
    assert [one.text for one in ordered.world.store.outbox.read(10)] == ["parked"]


def test_what_is_parked_comes_when_the_one_before_it_is_done(ordered):
    for n in (3, 1, 2):
        ordered.take(n)
    ordered.take(0)
    for _ in range(3):
        assert isinstance(ordered.take_copy(), Handled)
    assert ordered.ran == [0, 1, 2, 3]
    assert (ordered.waiting(), ordered.lanes.look(LANE)) == ({}, Place(4))
    assert {at for _, at in ordered.world.journal.copies} == {ordered.world.clock.now()}


def test_the_successor_is_published_before_it_is_forgotten_and_both_before_the_claim_ends(ordered):
    ordered.take(1)
    before = len(ordered.world.journal.entries)
    ordered.take(0)
    steps = ["followers", "move", "copy", "released", "fact", "complete"]
    assert ordered.since(before) == steps


def test_a_run_that_moved_its_lane_itself_lets_the_successor_come_too(moving):
    moving.take(1)
    before = len(moving.world.journal.entries)
    assert moving.take(0).moved.successor.sequence == 1
    assert moving.since(before) == ["followers", "copy", "released", "fact", "complete"]
    assert isinstance(moving.take_copy(), Handled)


def test_a_successor_is_not_forgotten_before_it_is_published(ordered):
    ordered.take(1)
    ordered.world.journal.broker_away.times = 2  # of the followers, and of the successor
    ordered.world.journal.entries.clear()
    waits = []
    sleep = ordered.world.clock.sleep
    ordered.world.clock.sleep = lambda span: (waits.append(set(ordered.waiting())), sleep(span))
    ordered.take(0)
    assert waits
    assert all(one == {1} for one in waits)
    assert ordered.waiting() == {}


def test_a_lane_that_came_meanwhile_has_the_early_one_come_again_at_once(ordered):
    def catch_up():
        for n in range(7):
            ordered.lanes.move(Step(LANE, n, f"e{n}", TYPE, None, ordered.world.clock.now()))

    ordered.lanes.meanwhile = catch_up
    before = ordered.world.clock.now()
    assert isinstance(ordered.take(7), Parked)
    ((copy, at),) = ordered.world.journal.copies
    assert (at, copy.headers[names.HOP], ordered.waiting()) == (before, 1, {})
    assert isinstance(ordered.take_copy(), Handled)


def test_beyond_a_full_lane_events_come_again_after_a_while_and_the_log_says_so(ordered, caplog):
    ordered.world.most_parked = 2
    for n in (10, 11):
        ordered.take(n)
    began, road = ordered.world.clock.now(), ordered.world.road()
    with caplog.at_level(logging.CRITICAL, "angzarr.ordering"):
        for n in (12, 13):
            assert isinstance(road.take(ordered.world.delivery(ordered.message(n))), Parked)
    assert {at - began for _, at in ordered.world.journal.copies} == {FULL_WAIT}
    assert [copy.headers[names.HOP] for copy, _ in ordered.world.journal.copies] == [1, 1]
    assert list(ordered.waiting()) == [10, 11]
    (line,) = caplog.messages
    assert line.startswith("lane_full: 2 events of")
    assert ordered.take(13, event_id="e13") == Superseded(), "its claim waits for the copy"


def test_what_is_a_little_ahead_asks_again_before_it_is_parked(ordered):
    ordered.take(NEAR)
    assert ordered.lanes.looks == len(ASKED_AGAIN) + 1


@pytest.mark.parametrize("ahead", [NEAR + 1, 100])
def test_what_is_far_ahead_asks_once(ordered, ahead):
    ordered.take(ahead)
    assert ordered.lanes.looks == 1


def test_behind_something_that_waits_nobody_asks_again(ordered):
    ordered.take(9)
    looks = ordered.lanes.looks
    ordered.take(1)
    assert ordered.lanes.looks == looks + 1


def test_the_one_before_it_may_be_done_while_it_asks_again(ordered):
    sleep = ordered.world.clock.sleep

    def meanwhile(span):
        sleep(span)
        ordered.lanes.move(Step(LANE, 0, "e0", TYPE, None, ordered.world.clock.now()))

    ordered.world.clock.sleep = meanwhile
    assert isinstance(ordered.take(1), Handled)


# -- what fails --------------------------------------------------------------------------------


def test_a_dead_letter_is_noted_and_what_follows_it_waits(ordered):
    ordered.fails[0] = GiveUp("no")
    outcome = ordered.take(0)
    assert ordered.world.journal.entries == ["letter", "note", "fact", "fail"]
    noted = ordered.waiting()[0]
    assert (noted.why, noted.letter_id) == (Why.DEAD_LETTER, outcome.letter.id)
    ordered.take(1)
    assert ordered.lanes.behind([outcome.letter.id]) == {outcome.letter.id: 1}
    assert isinstance(ordered.take(0), Refused)
    assert ordered.ran == [0]

    ordered.fails.clear()
    assert isinstance(ordered.take(0, **{names.REPLAY: 1}), Handled)
    assert isinstance(ordered.take_copy(), Handled)
    assert (ordered.ran, ordered.waiting()) == ([0, 0, 1], {})


def test_an_event_that_cannot_be_read_is_a_letter_before_its_turn_and_its_lane_knows(world):
    def bind(delivery, _context):
        if delivery.args == ["ill"]:
            raise ValueError("no number")
        return lambda: None

    lane = Ordered(world)
    order = Order(domains=frozenset({DOMAIN}), types=frozenset({TYPE}))
    world.handler(lambda *_: None, bind=bind, order=order)
    ill = replace(lane.message(1), body=json.dumps([["ill"], {}, {}]).encode())
    letter = world.take(ill).letter
    lane.take(2)
    lane.take(0)
    assert lane.lanes.look(LANE) == Place(1, waiting=2)
    assert [one.why for one in lane.waiting().values()] == [Why.DEAD_LETTER, Why.EARLY]
    assert lane.lanes.behind([letter.id]) == {letter.id: 1}


def test_a_second_body_under_the_id_of_a_parked_event_does_not_push_it_out(ordered):
    """It becomes a letter; the parked one is nowhere else."""
    ordered.take(1)
    other = replace(ordered.message(1), body=b'[["another"], {}, {}]')
    assert ordered.world.take(other).letter.reason is Reason.CONFLICT
    ordered.take(0)
    assert isinstance(ordered.take_copy(), Handled)
    assert ordered.ran == [0, 1]


@pytest.mark.parametrize(("delay", "is_noted"), [(NOTED_FROM - SECOND, False), (NOTED_FROM, True)])
def test_a_lane_is_noted_of_a_long_wait_for_a_retry(world, delay, is_noted):
    policy = Policy(
        name="p", base=delay, max_delay=delay, max_attempts=3, jitter=Jitter.NONE
    )  # fmt: skip
    lane = Ordered(world).register(policy=policy)
    lane.fails[0] = ConnectionResetError("gone")
    assert isinstance(lane.take(0), Retried)
    if is_noted:
        told = lane.waiting()[0]
        assert (told.why, told.due_at) == (Why.RETRYING, world.clock.now() + delay)
    else:
        assert lane.waiting() == {}


def test_a_lane_is_noted_of_what_goes_round_in_short_waits_and_has_its_copy(ordered):
    ordered.fails[0] = Postpone(delay=SECOND)
    for hop in range(NOTED_FROM_HOP):
        assert ordered.waiting() == {}, hop
        delivery = ordered.world.delivery(ordered.world.last_copy() if hop else ordered.message(0))
        ordered.world.road().take(delivery)
        ordered.world.clock.sleep(2 * SECOND)
    told = ordered.waiting()[0]
    assert told.why is Why.RETRYING
    assert schedule_row.read_row(told.text) == ordered.world.last_copy()


def test_the_first_message_of_what_is_retried_takes_no_attempt_from_it(world):
    """That is what a keeper sends again where it finds a gap."""
    policy = Policy(
        name="p", base=2 * SECOND, max_delay=2 * SECOND, max_attempts=3, jitter=Jitter.NONE
    )  # fmt: skip
    lane = Ordered(world).register(policy=policy)
    lane.fails[0] = ConnectionResetError("gone")
    assert isinstance(lane.take(0), Retried)
    copy = world.last_copy()
    world.clock.sleep(2 * SECOND)
    assert isinstance(lane.take(0), Superseded)
    assert world.last_copy() == copy
    assert isinstance(world.road().take(world.delivery(copy)), Retried)
    assert world.last_copy().headers[names.ATTEMPT] == 3


def test_what_waits_behind_a_retry_uses_no_attempt(world):
    policy = Policy(
        name="p", base=2 * SECOND, max_delay=2 * SECOND, max_attempts=3, jitter=Jitter.NONE
    )  # fmt: skip
    lane = Ordered(world).register(policy=policy)
    lane.fails[0] = ConnectionResetError("gone")
    lane.take(0)
    again = world.last_copy()
    lane.take(1)
    lane.fails.clear()
    world.clock.sleep(2 * SECOND)
    assert isinstance(world.take(again), Handled)
    assert world.last_copy().headers[names.ATTEMPT] == 1
    assert isinstance(lane.take_copy(), Handled)


def test_a_long_postponement_by_a_handler_is_noted_to_its_lane(ordered):
    ordered.fails[0] = Postpone(timedelta(minutes=5))
    assert isinstance(ordered.take(0), Postponed)
    assert ordered.waiting()[0].why is Why.RETRYING


def test_what_failed_before_its_handler_was_called_waits_for_its_turn_all_the_same(ordered):
    assert isinstance(ordered.take(1, failed=RevokedError()), Parked)
    assert ordered.world.journal.letters == []
    ordered.take(0)
    assert isinstance(ordered.take(0, failed=RevokedError()), Duplicate)
    outcome = ordered.world.road().take(
        ordered.world.delivery(ordered.world.last_copy()), RevokedError()
    )
    assert outcome.letter.reason is Reason.REVOKED
    assert ordered.waiting()[1].letter_id == outcome.letter.id


def test_a_parked_message_that_nobody_can_read_is_left_to_the_keeper(ordered, caplog):
    ordered.lanes.park(
        Waiting(
            lane=LANE, sequence=1, why=Why.EARLY, since=ordered.world.clock.now(), event_id="e1",
            event_type=TYPE, text="{",
        ),
        9,
    )  # fmt: skip
    assert isinstance(ordered.take(0), Handled)
    assert list(ordered.waiting()) == [1]
    assert "parked_unreadable: event e1" in caplog.text


# -- what is away ------------------------------------------------------------------------------


def test_while_the_lanes_are_away_a_delivery_is_held(ordered):
    ordered.lanes.away = 3
    assert isinstance(ordered.take(0), Handled)
    assert (ordered.ran, ordered.world.journal.copies) == ([0], [])


def test_an_event_whose_read_model_is_being_replaced_comes_again(moving):
    moving.lanes.enter = lambda _lane: None
    outcome = moving.take(0)
    assert outcome.delay == SHUT_WAIT
    assert "just being replaced" in outcome.why
    assert (moving.ran, moving.world.last_copy().headers[names.ATTEMPT]) == ([], 1)


def test_who_finds_the_gate_shut_writes_nothing_to_the_lanes_that_are_locked(moving):
    moving.lanes.enter = lambda _lane: None
    moving.take(0)
    for _ in range(NOTED_FROM_HOP):
        moving.world.clock.sleep(2 * SHUT_WAIT)
        assert isinstance(moving.take_copy(), Postponed)
    assert moving.waiting() == {}


@pytest.mark.parametrize("error", [None, ValueError("no"), Postpone()])
def test_who_entered_for_a_run_leaves_whatever_becomes_of_it(moving, error):
    entered = []

    def enter(lane):
        entered.append(Leaving(moving.lanes.look(lane), moving.lanes))
        return entered[-1]

    moving.lanes.enter = enter
    moving.fails = {0: error}
    moving.take(0)
    assert [one.left for one in entered] == [True]


@pytest.fixture
def entering(moving):
    """Every lane that was entered."""
    entered, enter = [], moving.lanes.enter

    def kept(lane):
        found = enter(lane)
        entered.append(Leaving(found.place, moving.lanes))
        return entered[-1]

    moving.lanes.enter = kept
    return entered


def test_nothing_is_open_while_the_claim_store_is_asked_whether_the_event_is_still_ours(
    moving, entering
):
    asked, world = [], moving.world
    owns = world.store.owns

    def ask(*key):
        asked.append([one.left for one in entering])
        return owns(*key)

    world.store.owns = ask
    delivery = world.boarded(moving.message(0))
    world.clock.sleep(LEASE)
    assert isinstance(world.road().take(delivery), Handled)
    assert asked[0] == [True]
    assert moving.ran == [0]


@pytest.mark.parametrize(("deaths", "redelivered"), [(0, False), (2, False), (0, True)])
def test_nothing_is_open_during_a_last_start_or_behind_a_redelivery(
    moving, entering, deaths, redelivered
):
    """Of these the step log or the claim store may have to be asked before the run."""
    world, seen = moving.world, []
    world.died(deaths, moving.message(0))
    moving.before = lambda: seen.extend(one.left for one in entering)
    delivery = replace(world.delivery(moving.message(0)), redelivered=redelivered)
    assert isinstance(world.road().take(delivery), Handled)
    assert seen == [bool(deaths or redelivered)]


def test_only_what_may_run_enters(moving):
    moving.take(0)
    moving.lanes.enter = lambda _lane: pytest.fail("nothing of it runs")
    assert isinstance(moving.take(1, **{names.EVENT_TYPE: "Shipped"}), Skipped)
    assert isinstance(moving.take(2, failed=RevokedError()), DeadLettered)


def test_who_waits_a_little_for_its_turn_asks_without_entering(moving):
    enter, entered = moving.lanes.enter, []

    def once(lane):
        entered.append(lane)
        return enter(lane)

    moving.lanes.enter = once
    assert isinstance(moving.take(1), Parked)
    assert (len(entered), moving.lanes.looks) == (1, 1 + len(ASKED_AGAIN))


def test_a_worker_that_stops_gives_back_what_it_holds_for_its_lane(ordered):
    ordered.lanes.away = 10**6
    ordered.world.stop = True
    with pytest.raises(GivenBack):
        ordered.take(0)
    assert ordered.world.journal.entries == ["release"]


@pytest.mark.parametrize("answer", [StoreUnavailable("away"), Elsewhere(1)], ids=["away", "moved"])
def test_a_run_whose_transaction_came_to_nothing_uses_no_attempt(moving, answer):
    def run(_step, work):
        work(None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    moving.lanes.run = run
    assert isinstance(moving.take(0), Postponed)
    assert moving.world.last_copy().headers[names.ATTEMPT] == 1
    assert moving.lanes.look(LANE) == Place(0)


def test_an_unordered_handler_has_no_lane(world):
    lane = Ordered(world)
    world.handler(lambda data, _context: lane.ran.append(data))
    for n in (5, 3):
        assert lane.take(n).moved is None
    assert (lane.ran, lane.lanes.looks) == ([5, 3], 0)


def test_a_move_that_was_not_heard_of_finds_the_successor_again(ordered):
    ordered.take(1)
    move, fails = ordered.lanes.move, [StoreUnavailable("the answer was lost")]

    def unheard(step):
        answer = move(step)
        if fails:
            raise fails.pop()
        return answer

    ordered.lanes.move = unheard
    assert isinstance(ordered.take(0), Handled)
    assert isinstance(ordered.take_copy(), Handled)
    assert ordered.lanes.checkpoints.get("h").events_processed == 2


def test_moved_says_what_waits(moving):
    moving.take(1)
    assert isinstance(moving.take(0).moved, Moved)


def test_a_second_event_of_the_same_sequence_comes_again_and_the_log_names_both(ordered, caplog):
    ordered.take(10)
    with caplog.at_level(logging.ERROR, "angzarr.ordering"):
        assert isinstance(ordered.take(10, event_id="other"), Parked)
    assert ordered.waiting()[10].event_id == "e10"
    (line,) = caplog.messages
    assert line.startswith("sequence_taken: event other says sequence 10")
    assert "e10" in line
    ((_, at),) = ordered.world.journal.copies
    assert at - ordered.world.clock.now() == FULL_WAIT


@pytest.mark.parametrize("moves", [False, True], ids=["plain", "projection"])
def test_what_was_handled_is_handled_once_more_where_its_lane_was_set_back(world, moves):
    ordered = Ordered(world).register(moves=moves)
    for n in (0, 1):
        ordered.take(n)
    ordered.lanes.reset("h")
    assert isinstance(ordered.take(1), Parked), "before its turn it waits as ever"
    assert isinstance(ordered.take(0), Handled)
    assert isinstance(ordered.take_copy(), Handled)
    assert ordered.ran == [0, 1, 0, 1]
    assert isinstance(ordered.take(0), Duplicate)
    assert ordered.lanes.look(LANE) == Place(2)


def test_a_second_body_under_one_id_is_no_letter_that_its_lane_waits_for(ordered):
    ordered.take(1)
    assert ordered.take(0, event_id="e1").letter.reason is Reason.CONFLICT
    assert list(ordered.waiting()) == [1], "its lane waits for another event, which may be missing"


def test_a_successor_that_the_broker_refuses_holds_up_nobody_and_stays(ordered, caplog):
    ordered.take(1)
    refused = BrokerUnavailable("no", refused=True)
    ordered.world.journal.schedule_put = lambda _copy, _at: (_ for _ in ()).throw(refused)
    assert isinstance(ordered.take(0), Handled)
    assert "parked_refused: event e1" in caplog.text
    assert list(ordered.waiting()) == [1], "its keeper tries it again"


def test_a_long_wait_is_noted_to_the_lane_before_its_copy_is_published(ordered):
    ordered.fails[0] = Postpone(60)
    began = len(ordered.world.journal.entries)
    ordered.take(0)
    assert ordered.since(began)[:2] == ["note", "copy"]


def test_an_event_in_other_hands_has_one_copy_however_often_its_lane_cannot_be_told(ordered):
    message = ordered.message(0, **{names.HOP: NOTED_FROM_HOP})
    ordered.world.leases.renew("w2", timedelta(hours=1))
    ordered.world.store.claim([ordered.world.delivery(message, owner="w2").claim])
    note, failures = ordered.lanes.note, [StoreUnavailable("away")] * 5

    def away(waiting, /, *, claimed=True):
        if failures:
            raise failures.pop()
        note(waiting, claimed=claimed)

    ordered.lanes.note = away
    assert isinstance(ordered.world.take(message), Postponed)
    assert (len(ordered.world.journal.copies), failures) == (1, [])


def test_a_delay_beyond_all_calendars_is_as_long_as_can_be(ordered):
    ordered.fails[0] = Postpone(timedelta.max / 2)
    assert isinstance(ordered.take(0), Postponed)
    assert ordered.waiting()[0].due_at == ordered.world.clock.now() + FURTHEST


def test_a_skip_of_what_has_no_place_in_a_lane_is_done_with(ordered):
    message = ordered.message(0, **{names.SKIP: "of no use"})
    placeless = replace(message, headers={**message.headers, names.ROOT: ""})
    assert isinstance(ordered.world.take(placeless), Skipped)
    assert ordered.world.journal.letters == []
