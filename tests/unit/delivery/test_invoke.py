"""Eager runs need no claim; hooks see everything in order and decide nothing."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.delivery.compensation import CompensationAction, Undos
from angzarr.delivery.context import RUNNING, no_breaker
from angzarr.delivery.delivery import Handled
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import Hooks, run_eagerly
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import RetryLater
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import POLICIES
from angzarr.resilience.policy_rules import policy_rules

POLICY = Policy(
    name="p", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=4,
)  # fmt: skip


def run(call, *args, headers=None, undos=None, reader=None, **kwargs):
    def bind(delivery, context):
        return lambda: call(delivery, context)

    handler = Handler(name="h", bind=bind, policy=POLICY)
    policy = FailurePolicy(
        letter_builder=None, clock=HandClock(), chance=lambda: 0.0, policies=policy_rules(POLICIES)
    )  # fmt: skip
    return run_eagerly(
        handler, InPlace(failure_policy=policy, stopping=lambda: False), undos or Undos(),
        headers or {"id": "task-1"}, args, kwargs,
        lambda fields: (logging.getLogger("test"), fields), no_breaker, lambda: reader,
    )  # fmt: skip


def test_the_value_comes_back_of_sync_and_async():
    async def later(delivery, _context):
        return delivery.args[0] * 2

    assert run(lambda delivery, _context: delivery.args[0] + 1, 1) == 2
    assert run(later, 4) == 8


def test_a_context_tells_what_it_tells_in_a_worker():
    def look(_delivery, context):
        return (
            context.attempt, context.max_attempts, context.replay, context.event.id,
            context.event.data, context.headers["task"], context.log[1]["handler"],
        )  # fmt: skip

    assert run(look, {"a": 1}) == (1, 4, 0, "task-1", {"a": 1}, "h", "h")


def test_headers_of_the_event_are_read():
    headers = {"id": "task-1", names.EVENT_ID: "e-9", names.ATTEMPT: 3}
    assert run(lambda _d, context: (context.event.id, context.attempt), 1, headers=headers) == (
        "e-9", 3,
    )  # fmt: skip


@pytest.mark.parametrize("error", [ValueError("mine"), RetryLater(5)])
def test_an_error_reaches_the_caller_as_it_is(error):
    def fail(_delivery, _context):
        raise error

    with pytest.raises(type(error)):
        run(fail, 1)


def test_all_arguments_of_a_plain_task_are_its_data():
    assert run(lambda delivery, _context: delivery.event.data, 1, 2, key=3) == {
        "args": [1, 2], "kwargs": {"key": 3},
    }  # fmt: skip


def test_a_step_is_tried_again_in_place():
    tries = []

    def step(word):
        tries.append(word)
        if len(tries) < 3:
            raise TimeoutError
        return word

    assert run(lambda _delivery, context: context.retry(step, "done"), 1) == "done"
    assert tries == ["done"] * 3


def test_what_runs_within_belongs_to_the_event_as_in_a_worker():
    async def look(_delivery, _context):
        return RUNNING.get().event.id

    assert run(lambda *_: RUNNING.get().event.id) == run(look) == "task-1"
    assert RUNNING.get() is None


def test_finished_steps_are_undone_where_the_handler_raises_the_last_one_first(caplog):
    undone, undos = [], Undos()
    undos.add("undo", undo := undone.append)
    undos.add("bad", bad := lambda _data: 1 / 0)

    async def place(_delivery, context):
        await context.aregister_compensation(CompensationAction("one", undo, 1))
        await context.aregister_compensation(CompensationAction("two", bad, 2))
        await context.aregister_compensation(CompensationAction("three", undo, 3))
        raise KeyError

    with pytest.raises(KeyError):
        run(place, 1, undos=undos)
    assert undone == [3, 1]
    assert "step_not_undone: 'two'" in caplog.text


class Watcher:
    def __init__(self, name, seen, breaks=""):
        self.name, self.seen, self.breaks = name, seen, breaks

    @contextmanager
    def _open(self):
        self._see("open")
        yield
        self._see("close")

    def attempt(self, _delivery):
        self._see("attempt")
        return self._open()

    def settled(self, _delivery, outcome):
        self._see(outcome)

    def _see(self, what):
        self.seen.append((self.name, what))
        if what == self.breaks or (self.breaks == "settled" and isinstance(what, Handled)):
            raise RuntimeError("a broken hook")


def test_contexts_open_in_order_and_close_in_reverse():
    seen = []
    with Hooks([Watcher("a", seen), Watcher("b", seen)]).attempt(None):
        seen.append("handler")
    assert seen == [
        ("a", "attempt"), ("a", "open"), ("b", "attempt"), ("b", "open"), "handler",
        ("b", "close"), ("a", "close"),
    ]  # fmt: skip


@pytest.mark.parametrize("breaks", ["attempt", "open", "close", "settled"])
def test_a_broken_hook_is_logged_and_neither_stops_the_handler_nor_the_others(breaks, caplog):
    seen, outcome = [], Handled(value=1)
    hooks = Hooks([Watcher("a", seen, breaks), Watcher("b", seen)])
    with hooks.attempt(None):
        seen.append("handler")
    hooks.settled(None, outcome)
    assert "handler" in seen
    assert [one[1] for one in seen if one[0] == "b"] == ["attempt", "open", "close", outcome]
    assert [record.message for record in caplog.records] == ["hook_failed"]
    assert caplog.records[0].levelno == logging.ERROR


def test_a_handlers_error_passes_through_and_contexts_are_closed():
    seen = []
    with pytest.raises(ValueError, match="mine"), Hooks([Watcher("a", seen)]).attempt(None):
        raise ValueError("mine")
    assert seen[-1] == ("a", "close")


def test_the_end_of_the_process_is_not_swallowed():
    class Ends:
        def attempt(self, _delivery):
            raise KeyboardInterrupt

        def settled(self, _delivery, _outcome):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Hooks([Ends()]).settled(None, Handled())


def test_a_hook_sees_an_outcome_once_it_is_true(world):
    seen = []

    class Late(Watcher):
        def settled(self, delivery, outcome):
            assert not world.store.owns(delivery.key, delivery.token)
            super().settled(delivery, outcome)

    world.hooks = Hooks([Late("a", seen)])
    world.handler(lambda _data, _context: 1)
    world.take()
    assert [what for _, what in seen] == ["attempt", "open", "close", Handled(value=1, result="1")]
