"""Eager runs: the handler as in a worker, without claim and without retry."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.delivery.compensation import CompensationAction, Undos
from angzarr.delivery.context import RUNNING, no_breaker
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import run_eagerly
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import RetryLater
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import POLICIES
from angzarr.resilience.policy_rules import policy_rules

POLICY = Policy(
    name="p", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=4,
)  # fmt: skip


def run(call, *args, headers=None, undos=None, **kwargs):
    def bind(delivery, context):
        return lambda: call(delivery, context)

    handler = Handler(name="h", bind=bind, policy=POLICY)
    judge = FailurePolicy(
        letter_builder=None, clock=HandClock(), chance=lambda: 0.0, policies=policy_rules(POLICIES)
    )  # fmt: skip
    return run_eagerly(
        handler, InPlace(failure_policy=judge, stopping=lambda: False), undos or Undos(),
        headers or {"id": "task-1"}, args, kwargs,
        lambda fields: (logging.getLogger("test"), fields), no_breaker,
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
