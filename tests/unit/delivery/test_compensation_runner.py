"""Undoing finished steps: which, when, in which order, and what is told of it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.async_runner import INTERRUPTER, Interrupt
from angzarr.delivery.compensation import (
    CompensationAction,
    FinishedStep,
    Logged,
    step_log_key,
    to_undo,
)
from angzarr.delivery.completions import is_left_to_ack
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Postponed, Retried, Skipped
from angzarr.errors import (
    ConfigurationError,
    DeliveryError,
    ExpiredError,
    GivenBack,
    GiveUp,
    Postpone,
    RevokedError,
    Skip,
    StoreUnavailable,
    UnserializableEvent,
)
from angzarr.resilience.backoff import Policy
from angzarr.resilience.idempotency import Claimed, Release

from .conftest import TimeIsOver

TWICE = Policy(
    name="twice", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=2,
    jitter="none",
)  # fmt: skip


class Shop:
    """Functions that undo, and what they undid."""

    def __init__(self, world):
        self.undone = []
        self.fails = {}

        async def recall(data):
            await asyncio.sleep(0)
            self._undo("recall", data)

        self.release = partial(self._undo, "release")
        self.refund = partial(self._undo, "refund")
        self.recall = recall
        for name in ("release", "refund", "recall"):
            world.undos.add(f"shop.{name}", getattr(self, name))

    def _undo(self, what, data):
        error = self.fails.get(what)
        if isinstance(error, list):
            error = error.pop() if error else None
        if error is not None:
            raise error
        self.undone.append((what, data))

    def names(self):
        return [what for what, _ in self.undone]

    def place(self, error=None, steps=("release", "refund", "recall")):
        """Return a handler that finishes *steps*, then raises *error*."""

        def handle(data, context):
            for step in steps:
                context.register_compensation(
                    CompensationAction(f"a {step}", getattr(self, step), {"of": data})
                )
            if error is not None:
                raise error
            return "placed"

        return handle


@pytest.fixture
def shop(world):
    return Shop(world)


def metadata(outcome):
    keys = ("steps_undone", "steps_not_undone", "steps_left")
    found = outcome.letter.metadata
    return {key: json.loads(found[key]) for key in keys if key in found}


def logged(world, delivery=None):
    return world.log.read(step_log_key(delivery or world.delivery()))


def becomes(world, call):
    """Let the handler be *call* from now on."""
    bind = lambda delivery, context: lambda: call(delivery.args[0], context)  # noqa: E731
    world.handlers._by_name["h"] = replace(world.handlers.get("h"), bind=bind)


def bug(_data, _context):
    raise ZeroDivisionError


def exit_now():
    raise SystemExit


def killed(world, call):
    """Run *call* as a delivery whose worker is killed at its end."""
    handler = world.handlers.get("h")
    becomes(world, lambda data, context: (call(data, context), exit_now()))
    with pytest.raises(SystemExit):
        world.take(owner="killed")
    world.leases.end("killed")
    world.handlers._by_name["h"] = handler


# -- a run that fails --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (GiveUp("no"), DeadLettered),
        (KeyError("bug"), DeadLettered),
        (ConnectionResetError(), Retried),
    ],
)
def test_the_steps_of_a_failed_run_are_undone_the_last_one_first(world, shop, error, ends):
    world.handler(shop.place(error), policy=TWICE)
    outcome = world.take()
    assert isinstance(outcome, ends)
    assert shop.undone == [(step, {"of": "data"}) for step in ("recall", "refund", "release")]
    assert logged(world) == Logged()


def test_steps_are_undone_before_the_outcome_is_made_true(world, shop):
    world.handler(shop.place(GiveUp("no"), ["release"]))
    world.take()
    assert world.journal.entries == ["fact", "letter", "fact", "fail"]
    assert [fact.subtype for fact in world.journal.facts] == ["step_undone", "refused"]


def test_the_letter_tells_what_was_undone_and_what_was_not(world, shop):
    shop.fails["refund"] = ValueError("the bank says no")
    world.handler(shop.place(GiveUp("no")))
    outcome = world.take()
    assert metadata(outcome) == {
        "steps_undone": ["a recall", "a release"], "steps_not_undone": ["a refund"]
    }  # fmt: skip
    assert outcome.letter.reason == "refused"
    assert str(outcome.error) == "no"


def test_a_failing_undo_stops_no_other_and_stays_in_the_log(world, shop, caplog):
    shop.fails["refund"] = ValueError("the bank says no")
    world.handler(shop.place(GiveUp("no")))
    world.take()
    assert shop.names() == ["recall", "release"]
    assert [step.name for step in logged(world).steps] == ["a refund"]
    (fact,) = (fact for fact in world.journal.facts if fact.subtype == "step_not_undone")
    assert (fact.type, fact.data["step"]) == ("error", "a refund")
    assert (fact.data["error_message"], fact.event_id) == ("the bank says no", "e1")
    assert "step_not_undone" in caplog.text


def test_what_could_not_be_undone_is_tried_again_when_the_next_attempt_fails(world, shop):
    shop.fails["refund"] = ValueError("the bank says no")
    world.handler(shop.place(ConnectionResetError()), policy=TWICE)
    assert isinstance(world.take(), Retried)
    shop.fails.clear()
    shop.undone.clear()
    becomes(world, shop.place(KeyError(), ["recall"]))
    world.clock.sleep(timedelta(seconds=2))
    outcome = world.take(world.last_copy())
    assert shop.names() == ["recall", "refund"]
    assert metadata(outcome) == {"steps_undone": ["a recall", "a refund"]}


def test_an_undo_that_fails_in_passing_is_tried_again_in_place(world, shop):
    shop.fails |= {"refund": [ConnectionResetError()] * 2, "recall": [TimeoutError()]}
    world.handler(shop.place(GiveUp("no")))
    world.take()
    assert shop.names() == ["recall", "refund", "release"]
    assert not [fact for fact in world.journal.facts if fact.subtype == "step_not_undone"]


def test_an_undo_in_a_retry_is_of_the_same_flow(world, shop):
    seen = []
    world.undos.add("look", look := lambda _data: seen.append(RUNNING.get().event.id))

    def handle(_data, context):
        context.register_compensation(CompensationAction("s", look))
        raise GiveUp

    world.handler(handle)
    world.take()
    assert seen == ["e1"]
    assert RUNNING.get() is None


def test_a_handler_that_finishes_no_step_asks_the_log_nothing(world, shop):
    world.log = None
    world.handler(lambda _data, _context: 1 / 0)
    assert isinstance(world.take(), DeadLettered)
    world.handler(lambda _data, _context: 1, name="fine")
    assert isinstance(world.take(task="fine"), Handled)
    assert world.journal.entries.count("complete") == 1


def test_a_worker_without_the_function_says_so_and_keeps_the_step(world, shop, caplog):
    world.handler(shop.place(GiveUp("no"), ["refund", "release"]))
    killed(world, shop.place(steps=["refund", "release"]))
    del world.undos._by_name["shop.refund"]
    becomes(world, bug)
    outcome = world.take()
    assert metadata(outcome) == {"steps_undone": ["a release"], "steps_not_undone": ["a refund"]}
    assert "no function is registered as 'shop.refund'" in caplog.text


def test_the_secrets_of_an_undos_error_are_hidden(world, shop, caplog):
    world.hide = lambda letter: replace(letter, error_message="***")
    shop.fails["release"] = ValueError("card 4711")
    world.handler(shop.place(GiveUp("no"), ["release"]))
    world.take()
    assert "4711" not in str(world.journal.facts) + caplog.text


# -- other ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, Skip("not ours")])
def test_an_event_that_is_done_takes_its_log_along(world, shop, error):
    world.handler(shop.place(error))
    delivery = world.delivery()
    outcome = world.road().take(delivery)
    assert isinstance(outcome, Handled | Skipped)
    assert shop.undone == []
    assert world.store.logs == {}


def test_a_postponed_event_keeps_its_steps_and_undoes_them_when_it_fails(world, shop):
    world.handler(shop.place(Postpone(1), ["release"]))
    world.take()
    assert [step.name for step in logged(world).steps] == ["a release"]
    assert shop.undone == []
    becomes(world, bug)
    world.clock.sleep(timedelta(seconds=2))
    world.take(world.last_copy())
    assert shop.names() == ["release"]


def test_a_duplicate_undoes_nothing(world, shop):
    world.handler(shop.place())
    world.take()
    assert isinstance(world.take(), Duplicate)
    assert shop.undone == []


def test_steps_are_undone_of_what_was_handled_and_cannot_be_followed(world, shop):
    class Never:
        def publish(self, *_given):
            raise DeliveryError("no task of this name")

    world.handler(shop.place(steps=["release"]))
    road = world.road()
    road = replace(road, settler=replace(road.settler, followers=Never()))
    outcome = road.take(world.delivery())
    assert isinstance(outcome, DeadLettered)
    assert metadata(outcome) == {"steps_undone": ["a release"]}


def test_what_has_a_log_is_not_left_to_the_acknowledgement(world):
    delivery = replace(world.delivery(), answer=Claimed(), ack_follows=True)
    for ended in (Handled(), Skipped(reason="no")):
        assert is_left_to_ack(delivery, ended)
        assert not is_left_to_ack(delivery, replace(ended, clears=True))


# -- kills ---------------------------------------------------------------------------------------


def test_steps_of_a_run_that_was_killed_are_undone_when_the_next_one_fails(world, shop):
    world.handler(shop.place(GiveUp("no"), ["recall"]))
    killed(world, shop.place(steps=["release", "refund"]))
    world.take()
    assert shop.names() == ["recall", "refund", "release"]


def test_a_redelivered_handler_that_is_handled_undoes_nothing(world, shop):
    world.handler(shop.place())
    killed(world, shop.place(steps=["release", "refund"]))
    assert isinstance(world.take(), Handled)
    assert (shop.undone, world.store.logs) == ([], {})


def test_an_undoing_that_was_cut_off_is_finished_before_the_handler_runs_again(world, shop):
    ran = []

    world.undos.add("dies", dies := lambda _data: exit_now())

    def first(data, context):
        shop.place(steps=["release"])(data, context)
        context.register_compensation(CompensationAction("cut", dies))
        shop.place(GiveUp("no"), ["refund"])(data, context)

    world.handler(first)
    world.leases.renew("w0", timedelta(days=1))
    with pytest.raises(SystemExit):
        world.take(owner="w0")
    world.leases.end("w0")
    assert shop.names() == ["refund"]
    assert [step.name for step in logged(world).steps] == ["a release", "cut"]
    world.undos._by_name["dies"] = world.undos.get("dies")._replace(
        function=lambda _data: shop.undone.append(("cut", ran[:]))
    )
    becomes(world, lambda _data, _context: ran.append(1))
    assert isinstance(world.take(), Handled)
    assert (shop.names(), shop.undone[1]) == (["refund", "cut", "release"], ("cut", []))
    assert ran == [1]
    assert world.store.logs == {}


def test_what_could_not_be_undone_waits_for_the_next_failure_and_not_for_the_next_start(
    world, shop
):
    shop.fails["release"] = ValueError("not now")
    world.handler(shop.place(ConnectionResetError(), ["release"]), policy=TWICE)
    world.take()
    shop.fails.clear()
    world.clock.sleep(timedelta(seconds=2))
    copy = world.last_copy()
    becomes(world, lambda data, context: (shop.place(steps=["refund"])(data, context), exit_now()))
    with pytest.raises(SystemExit):
        world.take(copy, owner="w0")
    world.leases.end("w0")
    becomes(world, lambda _data, _context: "fine")
    assert isinstance(world.take(copy), Handled)
    assert shop.undone == []


def test_poison_is_undone_by_whoever_finds_the_fourth_start(world, shop):
    world.handler(shop.place())
    killed(world, shop.place(steps=["release", "refund"]))
    world.died(2)
    outcome = world.take()
    assert outcome.letter.reason == "poison"
    assert metadata(outcome) == {"steps_undone": ["a refund", "a release"]}


def test_an_undo_that_kills_ends_as_a_letter_that_names_what_is_left(world, shop):
    world.handler(shop.place())
    killed(world, shop.place(steps=["release", "refund"]))
    world.died(3)  # the fourth start undid, and killed
    outcome = world.take()
    assert outcome.letter.reason == "poison"
    assert metadata(outcome) == {"steps_left": ["a refund", "a release"]}
    assert shop.undone == []


def test_poison_with_steps_waits_while_another_event_has_its_last_start(world, shop):
    """Its undo may kill the process as its handler may have."""
    world.handler(shop.place())
    killed(world, shop.place(steps=["release"]))
    world.died(2)
    road = world.road()
    road.last_starts._running.acquire()
    assert road.take(world.delivery()) == Postponed(
        delay=timedelta(seconds=2), why="last start", claimed=False
    )
    road.last_starts._running.release()
    world.clock.sleep(timedelta(seconds=2))
    assert metadata(road.take(world.delivery(world.last_copy()))) == {"steps_undone": ["a release"]}


def test_a_worker_that_must_go_is_cut_in_an_undo_as_in_a_handler(world, shop):
    def struck(_data):
        INTERRUPTER.interrupt()

    world.undos.add("struck", struck)

    def handle(data, context):
        shop.place(steps=["release"])(data, context)
        context.register_compensation(CompensationAction("s", struck))
        raise GiveUp

    world.handler(handle)
    try:
        with pytest.raises(GivenBack) as given:
            world.take()
    finally:
        INTERRUPTER.reset()
    assert isinstance(given.value.__cause__, Interrupt)
    assert (shop.undone, logged(world).undoing) == ([], "")
    assert isinstance(world.store.claim([world.delivery().claim])[0], Claimed)


# -- a late owner, a store that is away ----------------------------------------------------------


def test_a_late_owner_undoes_nothing_and_registers_nothing(world, shop):
    def slow(data, context):
        shop.place(steps=["release"])(data, context)
        world.leases.end("w0")
        world.store.claim([world.delivery(owner="w1").claim])
        shop.place(steps=["refund"])(data, context)

    world.leases.renew("w0", timedelta(days=1))
    world.handler(slow)
    assert world.take(owner="w0") is None
    assert shop.undone == []
    assert [step.name for step in logged(world).steps] == ["a release"]
    assert [fact.subtype for fact in world.journal.facts] == ["fenced"]


def test_who_is_taken_over_amid_undoing_leaves_the_rest_to_the_successor(world, shop):
    def takes_over(_data):
        world.leases.end("w0")
        world.store.claim([world.delivery(owner="w1").claim])

    world.undos.add("takes", takes_over)

    def handle(data, context):
        shop.place(steps=["release"])(data, context)
        context.register_compensation(CompensationAction("s", takes_over))
        raise GiveUp

    world.leases.renew("w0", timedelta(days=1))
    world.handler(handle)
    assert world.take(owner="w0") is None
    assert shop.undone == []
    assert [step.name for step in logged(world).steps] == ["a release", "s"]


class Ill:
    """A log whose store is away for some writes."""

    def __init__(self, log, *, writes):
        self.log = log
        self.writes = writes

    def add(self, place, step):
        if self.writes:
            self.writes -= 1
            raise StoreUnavailable("the store is away")
        return self.log.add(place, step)

    def __getattr__(self, name):
        return getattr(self.log, name)


def test_a_store_that_is_away_for_a_moment_is_waited_for(world, shop):
    world.log = Ill(world.log, writes=2)
    world.handler(shop.place(steps=["release"]))
    assert isinstance(world.take(), Handled)


def test_a_step_that_could_not_be_written_fails_the_run_and_is_undone_all_the_same(world, shop):
    world.log = Ill(world.log, writes=3)

    def handle(data, context):
        with pytest.raises(StoreUnavailable):
            shop.place(steps=["release"])(data, context)
        shop.place(steps=["refund"])(data, context)
        raise GiveUp

    world.handler(handle)
    outcome = world.take()
    assert metadata(outcome) == {"steps_undone": ["a release", "a refund"]}


def test_a_store_that_is_away_while_steps_are_undone_is_held_for(world, shop):
    asked = []

    class Away(Ill):
        def mark_undoing(self, place, cause):
            asked.append(cause)
            if len(asked) < 4:
                raise StoreUnavailable("the store is away")
            return self.log.mark_undoing(place, cause)

    world.log = Away(world.log, writes=0)
    world.handler(shop.place(GiveUp("no"), ["release"]))
    assert isinstance(world.take(), DeadLettered)
    assert (len(asked), shop.names()) == (4, ["release"])


# -- the parent ----------------------------------------------------------------------------------


def failed_outside(world, error, message=None):
    world.here = False
    try:
        delivery = world.delivery(message)
        return world.road().take(delivery, error)
    finally:
        world.here = True


def let_go(world, shop, steps=("release", "refund")):
    """Leave *steps* by a run whose claim its parent has freed."""
    world.handler(shop.place(steps=steps), policy=TWICE)
    delivery = world.delivery()
    handler = world.handlers.get("h")
    becomes(world, lambda data, context: (shop.place(steps=steps)(data, context), exit_now()))
    with pytest.raises(SystemExit):
        world.road().take(delivery)
    world.store.settle(delivery.key, delivery.token, Release())
    world.handlers._by_name["h"] = handler


def test_after_a_hard_time_limit_a_child_undoes_and_then_the_limit_is_judged(world, shop):
    let_go(world, shop)
    handed = failed_outside(world, TimeIsOver(1.5))
    assert isinstance(handed, Postponed)
    assert shop.undone == []
    becomes(world, lambda _data, _context: pytest.fail("the handler ran"))
    outcome = world.take(world.last_copy())
    assert isinstance(outcome, DeadLettered), "nobody here knows the error, so it is not retried"
    assert (outcome.error.args, outcome.letter.attempts) == ((1.5,), 1)
    assert metadata(outcome) == {"steps_undone": ["a refund", "a release"]}
    assert world.store.logs == {}


def test_a_parent_whose_broker_is_away_hands_on_once_it_is_back(world, shop):
    """It takes the whole road again, and must not take its own mark for a child's."""
    let_go(world, shop)
    world.here = False
    delivery, road = world.delivery(), world.road()
    first, second = (road.decide(delivery, TimeIsOver(1)) for _ in range(2))
    assert first == second
    assert isinstance(second, Postponed)


def test_a_hard_time_limit_amid_undoing_is_handed_on_once(world, shop):
    """Or an undo that hangs would go round for ever, and use no attempt."""
    let_go(world, shop)
    failed_outside(world, TimeIsOver(1))
    copy = world.last_copy()
    outcome = failed_outside(world, TimeIsOver(1), copy)
    assert isinstance(outcome, DeadLettered)
    assert metadata(outcome) == {"steps_left": ["a refund", "a release"]}
    assert shop.undone == []


@pytest.mark.parametrize("error", [RevokedError("revoked"), ExpiredError("expired")])
def test_what_was_revoked_or_expired_is_a_letter_that_names_the_steps_left(world, shop, error):
    let_go(world, shop)
    outcome = failed_outside(world, error)
    assert metadata(outcome) == {"steps_left": ["a refund", "a release"]}
    assert shop.undone == []
    assert len(world.log.read(step_log_key(world.delivery())).steps) == 2


def test_a_parent_tells_nothing_of_steps_where_there_are_none(world, shop):
    world.handler(shop.place())
    outcome = failed_outside(world, RevokedError("revoked"))
    assert metadata(outcome) == {}


def test_what_failed_before_its_handler_in_a_child_is_undone_there(world, shop):
    """A result backend that is away, say."""
    let_go(world, shop)
    outcome = world.road().take(world.delivery(), KeyError("backend"))
    assert metadata(outcome) == {"steps_undone": ["a refund", "a release"]}


# -- registering ---------------------------------------------------------------------------------


def refused(world, action):
    caught = []

    def handle(_data, context):
        try:
            context.register_compensation(action)
        except Exception as error:
            caught.append(error)
            raise

    world.handler(handle)
    world.take()
    return caught[0]


def test_a_function_that_is_not_registered_is_refused(world, shop):
    error = refused(world, CompensationAction("s", lambda _data: None))
    assert isinstance(error, ConfigurationError)
    assert "put @app.undo above it" in str(error)


@pytest.mark.parametrize("data", [{1, 2}, float("nan"), object(), "x" * 20_000])
def test_data_that_are_no_json_or_too_large_are_refused(world, shop, data):
    error = refused(world, CompensationAction("s", shop.release, data))
    assert isinstance(error, UnserializableEvent)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 1])
def test_a_name_that_nobody_could_read_is_refused(world, shop, name):
    assert isinstance(refused(world, CompensationAction(name, shop.release)), ConfigurationError)


def test_an_async_handler_registers_without_blocking_its_loop(world, shop):
    async def handle(data, context):
        await context.aregister_compensation(CompensationAction("s", shop.recall, data))
        with pytest.raises(ConfigurationError, match="aregister_compensation"):
            context.register_compensation(CompensationAction("t", shop.release, data))
        raise GiveUp

    world.handler(handle)
    world.take()
    assert shop.names() == ["release", "recall"]


def test_a_context_of_no_app_keeps_no_steps(world):
    context = Context(
        delivery=world.delivery(), make_policy=lambda: TWICE, make_log=logging.getLogger
    )
    with pytest.raises(ConfigurationError, match="belongs to no app"):
        context.register_compensation(CompensationAction("s", print))
    with pytest.raises(ConfigurationError, match="belongs to no app"):
        asyncio.run(context.aregister_compensation(CompensationAction("s", print)))


# -- rules ---------------------------------------------------------------------------------------

_STEPS = st.lists(st.sampled_from("abcdef"), unique=True).map(
    lambda names: {name: FinishedStep(name, "u") for name in names}
)


@given(_STEPS, _STEPS)
def test_each_step_is_undone_once_and_the_unwritten_first(written, unwritten):
    undone = [step.name for step in to_undo(list(written.values()), unwritten)]
    assert sorted(undone) == sorted(written.keys() | unwritten.keys())
    assert undone[: len(unwritten)] == list(unwritten)[::-1]
    assert undone[len(unwritten) :] == [
        name for name in list(written)[::-1] if name not in unwritten
    ]


def test_a_claim_answered_at_the_fetch_tells_of_steps_too(world, shop):
    """Where claims ride."""
    world.handler(shop.place())
    killed(world, shop.place(steps=["release"]))
    becomes(world, bug)
    delivery = world.delivery()
    (answer,) = world.store.claim([replace(delivery.claim, counted=False)])
    assert answer == Claimed(starts=1, steps=True)
    outcome = world.road().take(replace(delivery, answer=answer))
    assert metadata(outcome) == {"steps_undone": ["a release"]}
