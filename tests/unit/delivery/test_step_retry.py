"""Retries of one step inside a handler, by ``ctx.retry`` and ``ctx.aretry``."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hand_clock import START

from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Handled, Postponed, Retried, Skipped
from angzarr.delivery.handlers import Handler
from angzarr.errors import (
    CircuitOpenError,
    ConfigurationError,
    GiveUp,
    Postpone,
    RetryLater,
    Skip,
)
from angzarr.resilience.backoff import Policy, delay
from angzarr.resilience.category import Category
from angzarr.resilience.policies import POLICIES

SECOND = timedelta(seconds=1)
TICK = timedelta(milliseconds=1)
#: Waits 1 s, then 2 s, then is at its end.
PLAIN = Policy(
    name="plain", base=SECOND, max_delay=10 * SECOND, max_attempts=3, jitter="none",
)  # fmt: skip


class Step:
    """Fails with *errors*, one a try, then returns its arguments."""

    def __init__(self, clock, *errors):
        self.clock = clock
        self.errors = list(errors)
        self.at = []

    def __call__(self, *args, **kwargs):
        self.at.append((self.clock.now() - START).total_seconds())
        if self.errors:
            raise self.errors.pop(0)
        return args, kwargs


class AsyncStep(Step):
    async def __call__(self, *args, **kwargs):
        await asyncio.sleep(0)
        return super().__call__(*args, **kwargs)


@pytest.fixture(params=["sync", "async"])
def run(world, request):
    """Return what runs a step of a handler; its outcome, and when the step was tried."""

    def run(*errors, headers=None, policy=PLAIN, **handler):
        step = (Step if request.param == "sync" else AsyncStep)(world.clock, *errors)

        def call(_event, ctx):
            return ctx.retry(step, 1, word="a", policy=policy)

        async def acall(_event, ctx):
            return await ctx.aretry(step, 1, word="a", policy=policy)

        world.handler(call if request.param == "sync" else acall, **handler)
        return world.take(**(headers or {})), step.at

    return run


def test_a_step_that_works_is_called_once_with_its_arguments(run):
    outcome, at = run()
    assert (outcome.value, at) == (((1,), {"word": "a"}), [0])


def test_what_fails_in_passing_is_tried_again_by_the_policy(run):
    outcome, at = run(TimeoutError(), ConnectionError())
    assert isinstance(outcome, Handled)
    assert at == [0, 1, 3]


def test_the_last_error_takes_its_ordinary_road(run):
    last = TimeoutError("third")
    outcome, at = run(TimeoutError("first"), TimeoutError("second"), last)
    assert isinstance(outcome, Retried)
    assert outcome.error is last
    assert at == [0, 1, 3]


def test_the_default_policy_is_the_event_handlers(world):
    step = Step(world.clock, *[TimeoutError()] * 9)
    world.handler(lambda _event, ctx: ctx.retry(step))
    assert isinstance(world.take(), Retried)
    assert len(step.at) == POLICIES["event_handler"].max_attempts == 3
    assert step.at[-1] == pytest.approx(0.15)  # equal jitter at chance 0: 50 ms, then 100 ms


@pytest.mark.parametrize(
    "error",
    [
        Skip("no"),
        GiveUp("no"),
        Postpone(1),
        RetryLater(1),
        CircuitOpenError("crm", SECOND),
        ValueError("a bug"),
        SoftTimeLimitExceeded(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_says_the_outcome_and_what_no_retry_cures_is_passed_on_at_once(run, error):
    outcome, at = run(error)
    assert at == [0]
    assert not isinstance(outcome, Handled)


def test_a_directive_has_its_own_outcome(world):
    world.handler(lambda _event, ctx: ctx.retry(Step(world.clock, Skip("no"))))
    assert isinstance(world.take(), Skipped)
    world.handler(lambda _e, ctx: ctx.retry(Step(world.clock, CircuitOpenError("x", SECOND))), "b")
    assert isinstance(world.take(task="b", event_id="e2"), Postponed)


def test_a_policy_retries_its_own_categories_only(run):
    picky = Policy(
        name="picky", base=SECOND, max_delay=SECOND, max_attempts=3,
        retry_on=frozenset({Category.CONFLICT}),
    )  # fmt: skip
    assert run(TimeoutError(), policy=picky)[1] == [0]


@pytest.mark.parametrize(("error", "tries"), [(TimeoutError, [0, 1]), (ConnectionError, [0])])
def test_a_policy_retries_the_classes_of_errors_that_it_names_only(run, error, tries):
    picky = Policy(
        name="picky", base=SECOND, max_delay=SECOND, max_attempts=3, retry_errors=(TimeoutError,)
    )  # fmt: skip
    assert run(error(), policy=picky)[1] == tries


def test_a_handler_that_is_not_idempotent_repeats_no_server_error(run):
    broken = httpx.HTTPStatusError(
        "500", request=httpx.Request("GET", "http://crm.test"), response=httpx.Response(500)
    )
    assert run(broken, idempotent=False)[1] == [0]


@pytest.mark.parametrize(("asked", "tries"), [(10, [0, 10]), (11, [0])])
def test_a_longer_wait_than_the_policy_knows_is_left_to_the_schedule(run, asked, tries):
    said = httpx.Response(503, headers={"Retry-After": str(asked)})
    busy = httpx.HTTPStatusError(
        "503", request=httpx.Request("GET", "http://crm.test"), response=said
    )
    outcome, at = run(busy)
    assert at == tries
    if tries == [0]:
        assert outcome.delay >= timedelta(seconds=asked)


@pytest.mark.parametrize("seconds", [1, 3, 3.5])
def test_nothing_waits_past_the_messages_deadline(run, seconds):
    expires = (START + timedelta(seconds=seconds)).isoformat()
    _, at = run(*[TimeoutError()] * 3, headers={"expires": expires})
    assert at == [pause for pause in (0, 1, 3) if pause < seconds]


@pytest.mark.parametrize("limits", [[None, 2], [2, None], [2, 60], (60, 2)])
def test_nothing_waits_past_the_messages_time_limit(run, limits):
    assert run(*[TimeoutError()] * 3, headers={"timelimit": limits})[1] == [0, 1]


@pytest.mark.parametrize("limits", [[None, None], "soon", [1e300, "x"], None])
def test_a_time_limit_that_is_none_stops_nothing(run, limits):
    assert run(*[TimeoutError()] * 3, headers={"timelimit": limits})[1] == [0, 1, 3]


def test_nothing_waits_past_the_tasks_time_limit(world, run):
    world.time_limits["h"] = 3 * SECOND
    assert run(*[TimeoutError()] * 3)[1] == [0, 1]


def test_a_worker_that_stops_waits_no_longer(world, run):
    passed = world.clock.sleep

    def sleep(span):
        passed(span)
        world.stop = world.clock.now() >= START + 2 * SECOND

    world.clock.sleep = sleep
    error = TimeoutError("second")
    outcome, at = run(TimeoutError("first"), error)
    assert at == [0, 1]
    assert world.clock.now() < START + 3 * SECOND
    assert outcome.error is error


def test_a_worker_that_stops_begins_no_wait(world, run):
    world.stop = True
    assert run(TimeoutError())[1] == [0]
    assert world.clock.now() == START


def test_an_unknown_policy_is_refused_before_the_first_try(run):
    outcome, at = run(policy="event_handlr")
    assert at == []
    assert isinstance(outcome.error, ConfigurationError)


@pytest.mark.filterwarnings("error")
def test_a_coroutine_function_is_refused_instead_of_forgotten(world):
    step = AsyncStep(world.clock)
    world.handler(lambda _event, ctx: ctx.retry(step))
    assert "use await ctx.aretry" in str(world.take().error)
    assert step.at == []


def test_retry_within_an_event_loop_is_refused(world):
    step = Step(world.clock)

    async def call(_event, ctx):
        return ctx.retry(step)

    world.handler(call)
    assert "would block the event loop" in str(world.take().error)
    assert step.at == []


def test_a_context_of_no_app_refuses(world):
    context = Context(
        delivery=world.delivery(), make_policy=lambda: PLAIN, make_log=lambda _fields: None
    )
    with pytest.raises(ConfigurationError, match="does not belong to an app"):
        context.retry(Step(world.clock))


@settings(suppress_health_check=list(HealthCheck))
@given(
    failures=st.integers(0, 40),
    policy=st.sampled_from(list(POLICIES.values())),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_every_wait_is_within_the_policys_bounds(world, failures, policy, chance):
    in_place = world.road().in_place
    in_place = replace(
        in_place, failure_policy=replace(in_place.failure_policy, chance=lambda: chance)
    )
    step = Step(world.clock, *[TimeoutError()] * failures)
    handler = Handler(name="h", bind=lambda *_: step)
    with nullcontext() if failures < policy.max_attempts else pytest.raises(TimeoutError):
        in_place.retrying(world.delivery(), handler, START, policy).call(step)
    assert len(step.at) == min(failures + 1, policy.max_attempts)
    for n, (one, next_one) in enumerate(itertools.pairwise(step.at), start=1):
        waited = timedelta(seconds=next_one - one)
        assert delay(policy, n, 0) - TICK <= waited <= delay(policy, n, 1) + TICK
