"""Limits on the road: who is stopped, what is slept, what is given back."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Handled, Postponed, Retried
from angzarr.delivery.schedule import SLEPT
from angzarr.errors import GiveUp, Postpone
from angzarr.events import headers as names
from angzarr.resilience.breaker import BreakerSettings, Permit
from angzarr.resilience.budget import BudgetSettings
from angzarr.resilience.limit import Exceeded, Limit, LimitScope, LineWait

ONE = Limit("crm", concurrency=1)
#: One call every ten seconds.
SLOW = Limit("slow", rate=0.1, burst=1)
#: One call every 40 ms: that may be slept.
QUICK = Limit("quick", rate=25, burst=1)


def fill(world, limit=ONE, token="somebody", key=""):
    assert world.limits.take([LimitScope(limit, key)], token) is None


def is_free(world, limit=ONE, key=""):
    return world.limits.take([LimitScope(limit, key)], "next") is None


def raising(error):
    def handle(_data, _context):
        raise error

    return handle


def test_over_a_limit_it_is_postponed_and_uses_no_attempt(world):
    world.handler(lambda _data, _context: pytest.fail("must not run"), limits=(ONE,))
    fill(world)
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert (outcome.why, outcome.breaker) == ("limit crm is reached", None)
    assert world.last_copy().headers[names.ATTEMPT] == 1


def test_it_runs_when_there_is_a_slot(world):
    world.handler(lambda _data, _context: 1, limits=(ONE,))
    assert [type(world.take(event_id=f"e{n}")) for n in range(5)] == [Handled] * 5


@pytest.mark.parametrize(
    "ends",
    [ConnectionError("reset"), GiveUp("no"), Postpone(), KeyboardInterrupt()],
    ids=lambda ends: type(ends).__name__,
)
def test_a_slot_is_free_again_however_the_handler_ends(world, ends):
    world.handler(raising(ends), limits=(ONE,))
    with suppress(KeyboardInterrupt):
        world.take()
    assert is_free(world)


def test_a_slot_is_held_while_the_handler_runs(world):
    def handle(_data, _context):
        assert not is_free(world)

    world.handler(handle, limits=(ONE,))
    assert isinstance(world.take(), Handled)


def test_handlers_that_name_one_limit_share_it(world):
    def handle(_data, _context):
        assert isinstance(world.take(event_id="inner", task="other"), Postponed)

    world.handler(handle, limits=(ONE,))
    world.handler(lambda _data, _context: 1, name="other", limits=(ONE,))
    assert isinstance(world.take(), Handled)


def test_tenants_are_counted_apart(world):
    limit = Limit("crm", concurrency=1, per="tenant")
    world.handler(lambda _data, _context: 1, limits=(limit,))
    fill(world, limit, key="acme")
    acme = world.message(event_id="a", **{names.TENANT_ID: "acme"})
    other = world.message(event_id="b", **{names.TENANT_ID: "other"})
    assert [type(world.take(made)) for made in (acme, other)] == [Postponed, Handled]
    assert is_free(world, limit, key="other")


def test_a_wait_of_a_moment_is_slept(world):
    world.handler(lambda _data, _context: 1, limits=(QUICK,))
    began = world.clock.now()
    assert [type(world.take(event_id=f"e{n}")) for n in range(10)] == [Handled] * 10
    assert world.clock.now() - began == pytest.approx(
        timedelta(milliseconds=360), abs=timedelta(milliseconds=1)
    )


class _Crowded(InProcessLimits):
    """Somebody else is always quicker."""

    def take(self, scopes, _token):
        return Exceeded(scopes[0].limit.name, LineWait(timedelta(milliseconds=30)))


def test_no_more_than_100_ms_are_slept(world):
    world.limits = _Crowded()
    world.handler(lambda _data, _context: pytest.fail("must not run"), limits=(QUICK,))
    began = world.clock.now()
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert outcome.delay > SLEPT, "it would be slept by whoever settles it"
    assert world.clock.now() - began == timedelta(milliseconds=90)


def test_what_waits_longer_is_not_slept(world):
    world.handler(lambda _data, _context: 1, limits=(SLOW,))
    began = world.clock.now()
    outcomes = [world.take(event_id=f"e{n}") for n in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Handled, Postponed, Postponed]
    waits = [outcome.delay.total_seconds() for outcome in outcomes[1:]]
    assert waits == pytest.approx([10, 20])
    assert world.clock.now() == began


def test_nothing_waits_for_a_limit_for_ever(world):
    world.handler(lambda _data, _context: 1, limits=(ONE,), max_age=timedelta(minutes=1))
    fill(world)
    assert isinstance(world.take(), Postponed)
    world.clock.sleep(timedelta(hours=1))
    outcome = world.take(world.last_copy())
    assert isinstance(outcome, DeadLettered)
    letter = outcome.letter
    assert (letter.reason, letter.error_code) == (Reason.TOO_OLD, "LIMIT_EXCEEDED")


def test_a_fallback_is_for_open_breakers_and_not_for_limits(world):
    world.handler(
        lambda _data, _context: 1,
        limits=(ONE,),
        fallback=lambda _delivery, _context: lambda: pytest.fail("must not run"),
    )
    fill(world)
    assert isinstance(world.take(), Postponed)


# -- what was taken before ---------------------------------------------------------------------


@pytest.fixture
def half_open(world):
    """A breaker that lets one probe through."""
    touchy = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))
    world.breakers = InProcessBreakers(default=touchy, clock=world.clock)
    permit = world.breakers.admit("crm", "before")
    world.breakers.record(permit, ok=False, took=timedelta(0))
    world.clock.sleep(touchy.open_for)


@pytest.mark.usefixtures("half_open")
def test_a_probe_that_a_limit_stops_is_free_again(world):
    world.handler(lambda _data, _context: 1, breaker="crm", limits=(ONE,))
    fill(world)
    assert world.take().why == "limit crm is reached"
    assert isinstance(world.breakers.admit("crm", "next"), Permit)


def test_a_retry_that_a_limit_stops_costs_no_budget(world):
    world.budgets = InProcessBudgets(default=BudgetSettings(share=0, least=1), clock=world.clock)
    world.handler(raising(ConnectionError("reset")), breaker="crm", limits=(ONE,))
    fill(world)
    assert isinstance(world.take(**{names.ATTEMPT: 2}), Postponed)
    world.limits.release([LimitScope(ONE, "")], "somebody")
    assert isinstance(world.take(event_id="e2", **{names.ATTEMPT: 2}), Retried)


def test_what_a_breaker_or_a_budget_stops_costs_no_limit(world):
    world.budgets = InProcessBudgets(default=BudgetSettings(share=0, least=1), clock=world.clock)
    world.budgets.retry(["crm"], "somebody")
    world.handler(lambda _data, _context: 1, breaker="crm", limits=(ONE, SLOW))
    assert isinstance(world.take(**{names.ATTEMPT: 2}), Postponed)
    world.breakers.isolate("crm", by="me")
    assert isinstance(world.take(event_id="e2"), Postponed)
    assert is_free(world)
    assert is_free(world, SLOW)


class _Counting(InProcessLimits):
    """Counts what is freed."""

    freed = 0

    def release(self, scopes, token):
        self.freed += 1
        super().release(scopes, token)


class _Cutting(_Counting):
    """Who asks is cut short."""

    def take(self, _scopes, _token):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "ends",
    [None, ConnectionError("reset"), Postpone(), KeyboardInterrupt()],
    ids=lambda ends: type(ends).__name__,
)
def test_what_was_taken_is_freed_once(world, ends):
    world.limits = _Counting(world.clock)
    world.handler(raising(ends) if ends else lambda _data, _context: 1, limits=(ONE,))
    with suppress(KeyboardInterrupt):
        world.take()
    assert world.limits.freed == 1


def test_who_is_refused_has_nothing_to_free(world):
    world.limits = _Counting(world.clock)
    world.handler(lambda _data, _context: 1, limits=(ONE,))
    fill(world)
    world.take()
    assert world.limits.freed == 0


@pytest.mark.usefixtures("half_open")
def test_a_delivery_that_is_cut_while_it_asks_gives_everything_back_once(world):
    world.limits = _Cutting()
    world.handler(lambda _data, _context: 1, breaker="crm", limits=(ONE,))
    with pytest.raises(KeyboardInterrupt):
        world.take()
    assert world.limits.freed == 1
    assert isinstance(world.breakers.admit("crm", "next"), Permit)


def test_who_names_nothing_asks_nobody(world):
    world.breakers = world.budgets = world.limits = None  # whoever asks them fails
    world.handler(lambda _data, _context: 1)
    assert isinstance(world.take(), Handled)
