"""Costs are facts at once, whatever becomes of the run, and budgets stop what would begin."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from angzarr.delivery.costs import FRESH, CostBudgets
from angzarr.delivery.delivery import DeadLettered, Handled, Retried
from angzarr.errors import InvalidCost, StoreUnavailable
from angzarr.events import headers as names
from angzarr.facts.cost_budget import CostBudget
from angzarr.resilience.category import Category


class Reads:
    """Answers what was spent; an error is raised."""

    def __init__(self, amount="0"):
        self.amount = Decimal(amount)
        self.error = None
        self.asked = []

    def __call__(self, scope):
        self.asked.append(scope)
        if self.error:
            raise self.error
        return self.amount


@pytest.fixture
def reads():
    return Reads()


@pytest.fixture
def bounded(world, reads):
    budget = CostBudget(name="llm", amount=Decimal(10), currency="EUR", tenant="*")
    world.cost_budgets = CostBudgets(budgets=[budget], spent=reads, clock=world.clock)
    return world


def costs(world):
    return [fact for fact in world.journal.facts if fact.type == "cost"]


def test_a_cost_is_a_fact_before_the_run_ends(world):
    seen = []

    def call(_data, context):
        context.cost("0.30", "USD", to="openai", units={"model": "m", "tokens": 12}, operation="x")
        seen.extend(costs(world))

    world.handler(call)
    headers = {names.TENANT_ID: "acme", names.ROOT: "o-1", names.CONFIG_PINS: '{"pricing": "3"}'}
    assert isinstance(world.take(**headers), Handled)
    (fact,) = seen
    assert (fact.type, fact.subtype, fact.tenant_id, fact.event_id) == (
        "cost", "tool_usage", "acme", "e1",
    )  # fmt: skip
    assert (fact.cost.amount, fact.cost.currency) == (Decimal("0.30"), "USD")
    assert (fact.cost.from_entity, fact.cost.to_entity) == ("acme", "openai")
    assert fact.data["units"] == {"model": "m", "tokens": 12}
    assert (fact.data["operation"], fact.data["retry_attempt"], fact.data["replay"]) == ("x", 1, 0)


def test_a_cost_names_the_configuration_that_priced_it(world):
    world.handler(lambda _data, context: context.cost(1, "EUR", config="pricing"))
    world.take(**{names.CONFIG_PINS: '{"pricing": "3"}'})
    (fact,) = costs(world)
    assert (fact.config_id, fact.config_version) == ("pricing", "3")


def test_facts_have_the_asset_that_the_handler_says(world):
    def call(_data, context):
        context.cost(1, "EUR")
        context.set_asset("printer-7")
        context.cost(2, "EUR")
        context.cost(3, "EUR", asset="toner-1")
        if context.attempt == 1:
            raise ConnectionResetError("gone")

    world.handler(call)
    assert isinstance(world.take(), Retried)
    told = [(fact.type, fact.asset_id) for fact in world.journal.facts]
    assert told == [("cost", None), ("cost", "printer-7"), ("cost", "toner-1"),
                    ("error", "printer-7")]  # fmt: skip
    world.clock.sleep(timedelta(seconds=5))
    assert isinstance(world.take(world.last_copy()), Handled)
    assert world.journal.facts[-1].asset_id == "printer-7"


@pytest.mark.parametrize(
    ("said", "kept"), [(None, None), ("", None), (7, "7"), ("x" * 900, "x" * 500)]
)
def test_any_asset_is_a_text_of_bounded_length_or_none(world, said, kept):
    def call(_data, context):
        context.set_asset("before")
        context.set_asset(said)

    world.handler(call)
    world.take()
    assert world.journal.facts[-1].asset_id == kept


def test_a_run_does_not_know_the_asset_of_another(world):
    world.handler(
        lambda _data, context: context.set_asset("a") if context.event.id == "one" else None
    )
    for event_id in ("one", "two"):
        world.take(**{names.EVENT_ID: event_id})
    assert [fact.asset_id for fact in world.journal.facts] == ["a", None]


def test_what_a_failed_call_cost_stays_written(world):
    def call(_data, context):
        context.cost(2, "EUR")
        context.cost(3, "EUR")
        raise ConnectionResetError("gone")

    world.handler(call)
    assert isinstance(world.take(), Retried)
    assert [fact.cost.amount for fact in costs(world)] == [2, 3]
    assert len({fact.id for fact in costs(world)}) == 2


def test_an_async_handler_writes_costs_too(world):
    async def call(_data, context):
        await asyncio.gather(context.acost(1, "EUR"), context.acost(2, "EUR"))

    world.handler(call)
    world.take()
    assert sorted(fact.cost.amount for fact in costs(world)) == [1, 2]


def test_a_bad_cost_is_a_bug_that_loses_nothing(world):
    world.handler(lambda _data, context: context.cost(0.1, "EUR"))
    outcome = world.take()
    assert isinstance(outcome, DeadLettered)
    assert isinstance(outcome.error, InvalidCost)
    assert costs(world) == []


def test_a_spent_budget_ends_in_its_category_and_calls_no_handler(bounded, reads):
    reads.amount = Decimal("10.5")
    called = []
    bounded.handler(lambda _data, _context: called.append(1))
    outcome = bounded.take(**{names.TENANT_ID: "acme"})
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.error_code == "COST_BUDGET_SPENT"
    assert outcome.letter.category == Category.BUDGET
    assert "10.5 of 10 EUR since" in outcome.letter.error_message
    assert called == []


def test_what_no_budget_bounds_asks_nothing(bounded, reads):
    bounded.handler(lambda _data, _context: None)
    assert isinstance(bounded.take(), Handled)
    assert reads.asked == []


def spend(amount):
    return lambda _data, context: context.cost(amount, "EUR")


def test_what_this_process_spends_counts_before_it_is_read(bounded, reads):
    bounded.handler(spend(6))
    taken = [
        bounded.take(event_id=f"e{number}", **{names.TENANT_ID: "acme"}) for number in range(3)
    ]
    assert [type(one) for one in taken] == [Handled, Handled, DeadLettered]
    assert len(reads.asked) == 1


def test_a_tenant_does_not_spend_what_is_anothers(bounded):
    bounded.handler(spend(20))
    for tenant in ("one", "two"):
        outcome = bounded.take(event_id=tenant, **{names.TENANT_ID: tenant})
        assert isinstance(outcome, Handled)


def test_a_sum_is_read_again_after_some_seconds_and_never_falls(bounded, reads):
    bounded.handler(spend(6))
    assert isinstance(bounded.take(event_id="a", **{names.TENANT_ID: "acme"}), Handled)
    bounded.clock.sleep(FRESH)
    reads.amount = Decimal(0)  # its fact is on its way still
    assert isinstance(bounded.take(event_id="b", **{names.TENANT_ID: "acme"}), Handled)
    bounded.clock.sleep(FRESH)
    reads.amount = Decimal(12)
    assert isinstance(bounded.take(event_id="c", **{names.TENANT_ID: "acme"}), DeadLettered)
    assert len(reads.asked) == 3


def test_a_budget_begins_anew_with_its_month(bounded, reads):
    bounded.handler(spend(11))
    assert isinstance(bounded.take(event_id="a", **{names.TENANT_ID: "acme"}), Handled)
    assert isinstance(bounded.take(event_id="b", **{names.TENANT_ID: "acme"}), DeadLettered)
    bounded.clock.sleep(timedelta(days=32))
    assert isinstance(bounded.take(event_id="c", **{names.TENANT_ID: "acme"}), Handled)


def test_no_event_fails_because_sums_cannot_be_read(bounded, reads, caplog):
    reads.error = StoreUnavailable("the database is away")
    bounded.handler(lambda _data, _context: None)
    for number in range(2):
        assert isinstance(bounded.take(event_id=f"e{number}", **{names.TENANT_ID: "a"}), Handled)
        bounded.clock.sleep(FRESH)
    assert caplog.text.count("cost_budget_unread") == 1
