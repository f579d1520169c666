"""Retry budgets on the road: who is stopped, what is spent, what is given back."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.limits import InProcessBudgets
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Handled, Postponed, Retried
from angzarr.errors import GiveUp, Postpone, Skip
from angzarr.events import headers as names
from angzarr.resilience.breaker import BreakerSettings, Permit
from angzarr.resilience.budget import BudgetSettings

PATIENT = BreakerSettings(min_calls=1000, ramp_up=timedelta(0))
ONE = BudgetSettings(share=0, least=1)


@pytest.fixture(autouse=True)
def small(world):
    world.breakers = InProcessBreakers(default=PATIENT, clock=world.clock)
    world.budgets = InProcessBudgets(default=ONE, clock=world.clock)


class Handling:
    """A handler that ends as it is told to, and how often it ran."""

    def __init__(self, world, **options):
        self.world, self.runs, self.ends = world, 0, None
        world.handler(self._handle, **{"breaker": "crm"} | options)

    def _handle(self, _data, _context):
        self.runs += 1
        if self.ends is not None:
            raise self.ends

    def take(self, attempt=1, **headers):
        made = self.world.message(event_id=f"e{self.world.tokens}", **headers)
        made.headers[names.ATTEMPT] = attempt
        return self.world.take(made)


@pytest.fixture
def handling(world):
    return Handling(world)


def spend(handling, ends=None):
    handling.ends = ends or ConnectionError("reset")
    outcome = handling.take(attempt=2)
    handling.ends = None
    return outcome


def test_a_retry_over_the_budget_is_postponed_and_uses_no_attempt(handling, world):
    assert isinstance(spend(handling), Retried)
    outcome = handling.take(attempt=3)
    assert isinstance(outcome, Postponed)
    assert outcome.why == "the retry budget of crm is spent"
    assert outcome.delay >= timedelta(seconds=1)
    assert world.last_copy().headers[names.ATTEMPT] == 3
    assert handling.runs == 1


def test_first_attempts_need_no_budget(handling):
    spend(handling)
    assert [type(handling.take()) for _ in range(20)] == [Handled] * 20


def test_first_attempts_allow_retries(handling, world):
    world.budgets = InProcessBudgets(default=BudgetSettings(share=0.2, least=1), clock=world.clock)
    spend(handling)
    assert isinstance(spend(handling), Postponed)
    for _ in range(5):
        handling.take()
    assert isinstance(spend(handling), Retried)


def test_first_attempts_that_made_no_call_allow_nothing(handling, world):
    world.budgets = InProcessBudgets(default=BudgetSettings(share=1, least=1), clock=world.clock)
    spend(handling)
    handling.ends = Postpone()
    for _ in range(5):
        handling.take()
    assert isinstance(spend(handling), Postponed)


@pytest.mark.parametrize(
    "ends",
    [None, GiveUp("no"), Skip("refused"), ValueError("a bug"), Postpone(), KeyboardInterrupt()],
    ids=lambda ends: type(ends).__name__,
)
def test_a_retry_that_does_the_dependency_no_harm_costs_nothing(handling, ends):
    for _ in range(5):
        handling.ends = ends
        with suppress(KeyboardInterrupt):
            assert not isinstance(handling.take(attempt=2), Retried)
    assert handling.runs == 5


def test_a_retry_that_fails_costs_the_budgets_whose_errors_it_counts(world):
    handling = Handling(world, breaker={"crm": ConnectionError, "mail": TimeoutError})
    spend(handling, TimeoutError())
    assert world.budgets.retry(["crm"], "next") is None
    assert world.budgets.retry(["mail"], "next").name == "mail"


def test_a_retry_that_an_open_breaker_stops_costs_nothing(handling, world):
    world.breakers.isolate("crm", by="me")
    assert handling.take(attempt=2).breaker == "crm"
    world.breakers.reset("crm", by="me")
    assert isinstance(handling.take(attempt=2), Handled)


def test_a_probe_that_a_spent_budget_stops_is_free_again(handling, world):
    touchy = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))
    world.breakers = InProcessBreakers(default=touchy, clock=world.clock)
    world.budgets = InProcessBudgets(
        default=BudgetSettings(share=0, least=1, window=timedelta(hours=1)), clock=world.clock
    )
    spend(handling)
    world.clock.sleep(touchy.open_for)
    outcome = handling.take(attempt=2)
    assert isinstance(outcome, Postponed)
    assert outcome.breaker is None
    assert isinstance(world.breakers.admit("crm", "next"), Permit)


def test_a_handler_that_names_no_breaker_has_no_budget(world):
    world.budgets = None  # whoever asks it fails
    handling = Handling(world, breaker=None)
    assert isinstance(handling.take(attempt=2), Handled)


def test_nothing_waits_for_a_budget_for_ever(world):
    handling = Handling(world, max_age=timedelta(minutes=1))
    world.budgets = InProcessBudgets(
        default=BudgetSettings(share=0, least=1, window=timedelta(days=1)), clock=world.clock
    )
    spend(handling)
    assert isinstance(handling.take(attempt=2), Postponed)
    world.clock.sleep(timedelta(hours=1))
    outcome = world.take(world.last_copy())
    assert isinstance(outcome, DeadLettered)
    assert (outcome.letter.reason, outcome.letter.error_code) == (
        Reason.TOO_OLD,
        "RETRY_BUDGET_SPENT",
    )


class _Counting(InProcessBudgets):
    """Counts what is given back."""

    back = 0

    def returned(self, names, token):
        self.back += 1
        super().returned(names, token)


def test_who_is_refused_has_nothing_to_give_back(handling, world):
    world.budgets = _Counting(default=ONE, clock=world.clock)
    world.budgets.retry(["crm"], "somebody")
    assert isinstance(handling.take(attempt=2), Postponed)
    assert world.budgets.back == 0


class _Broken(InProcessBudgets):
    def retry(self, _names, _token):
        raise KeyboardInterrupt


def test_a_probe_is_free_again_if_the_delivery_is_cut_while_it_asks(handling, world):
    touchy = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))
    world.breakers = InProcessBreakers(default=touchy, clock=world.clock)
    spend(handling)
    world.clock.sleep(touchy.open_for)
    world.budgets = _Broken(clock=world.clock)
    with pytest.raises(KeyboardInterrupt):
        handling.take(attempt=2)
    assert isinstance(world.breakers.admit("crm", "next"), Permit)
