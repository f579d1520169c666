"""Judge: which policy a failure gets, and what a deadline ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.hand_clock import START

from angzarr.analysis.ledger.failure import facts_of
from angzarr.delivery.delivery import DeadLettered, Handled, Retried
from angzarr.errors import CommandRejectedError, RetryLater
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import Category
from angzarr.resilience.policies import POLICIES, policies_from
from angzarr.resilience.policy_rules import policy_rules
from angzarr.resilience.taxonomy import Rule

SLOW = Policy(
    name="slow", base=timedelta(seconds=30), max_delay=timedelta(minutes=5), max_attempts=9
)


def raising(error):
    def call(_event, _context):
        raise error

    return call


def expiring(seconds):
    return {"expires": (START + timedelta(seconds=seconds)).isoformat()}


# -- rules ----------------------------------------------------------------------------------


def test_a_rule_for_the_category_decides_once_the_error_is_known(world):
    shown = []

    def fail(_event, ctx):
        shown.append(ctx.max_attempts)
        raise TimeoutError

    world.rules = [{"policy": "background", "category": Category.TRANSIENT}]
    world.handler(fail)
    outcome = world.take()
    assert (outcome.delay, outcome.max_attempts) == (timedelta(seconds=5), 10)
    assert shown == [POLICIES["default"].max_attempts]


@pytest.mark.parametrize(
    ("rule", "headers"),
    [
        ({"handler": "h"}, {}),
        ({"operation": "webhook"}, {}),
        ({"event_type": "Order*"}, {names.EVENT_TYPE: "OrderPlaced"}),
        ({"tenant": "acme"}, {names.TENANT_ID: "acme"}),
        ({"domain": "order"}, {}),
        ({"priority": "realtime"}, {names.PRIORITY: "realtime"}),
        ({"time_left": timedelta(minutes=2)}, expiring(100)),
    ],
    ids="-".join,
)
def test_a_delivery_says_all_that_rules_ask_for(world, rule, headers):
    world.rules = [{"policy": "crm_sync", **rule}]
    operation = "webhook" if "operation" in rule else None
    world.handler(raising(TimeoutError()), domain="order", operation=operation)
    world.handler(raising(TimeoutError()), name="other")
    assert world.take(**headers).max_attempts == 10
    assert world.take(task="other", event_id="e2").max_attempts == 5


def test_an_events_domain_counts_where_its_handler_has_none(world):
    world.rules = [{"policy": "crm_sync", "domain": "order"}]
    world.handler(raising(TimeoutError()))
    assert world.take(**{names.DOMAIN: "order"}).max_attempts == 10


def test_a_rule_may_say_that_nothing_is_retried(world):
    world.rules = [{"policy": "no_retry", "tenant": "acme"}]
    world.handler(raising(TimeoutError()))
    letter = world.take(**{names.TENANT_ID: "acme"}).letter
    assert (letter.reason, letter.attempts) == ("exhausted", 1)


def test_a_rule_may_give_a_policy_that_retries_some_categories_only(world):
    known = policies_from({"picky": {"max_attempts": 7, "retry_on": ["conflict"]}})
    rules = policy_rules(known, rules=[{"policy": "picky", "handler": "h"}])
    world.handler(
        raising(TimeoutError()), rules=[Rule(matches=KeyError, category=Category.CONFLICT)]
    )
    policy = replace(world.road().failure_policy, policies=rules)
    handler, delivery = world.handlers.get("h"), world.delivery()
    assert policy.failed(delivery, handler, TimeoutError())[0].letter.reason == "refused"
    assert policy.failed(delivery, handler, KeyError())[0].max_attempts == 7


def test_no_rule_makes_an_error_retryable_that_is_not(world):
    world.rules = [{"policy": "background", "category": Category.CLIENT}]
    world.handler(raising(CommandRejectedError("no")))
    assert world.take().letter.reason == "refused"


# -- the letter ----------------------------------------------------------------------------


def test_every_letter_carries_its_group_and_it_is_the_one_that_the_ledger_would_give_it(world):
    def refuse(event, _context):
        raise CommandRejectedError(event)

    world.handler(refuse)
    first, alike, other = (
        world.take(data=said, event_id=said).letter
        for said in ("order 17 is closed", "order 18 is closed", "the shop is closed")
    )
    assert first.fingerprint == alike.fingerprint != other.fingerprint
    assert first.fingerprint == facts_of(replace(first, fingerprint=""))["fingerprint"]


def test_what_is_handled_does_not_pay_for_the_group(world, monkeypatch):
    monkeypatch.setattr("angzarr.delivery.letter_builder.fingerprint", pytest.fail)
    world.handler(lambda _event, _context: None)
    assert isinstance(world.take(), Handled)


# -- the deadline ---------------------------------------------------------------------------


def test_a_retry_that_could_not_begin_before_the_deadline_is_a_letter_now(world):
    world.handler(raising(TimeoutError("crm is slow")), policy=SLOW)
    outcome = world.take(**expiring(30))
    assert isinstance(outcome, DeadLettered)
    letter = outcome.letter
    assert (letter.reason, letter.attempts, letter.category) == ("out_of_time", 1, "transient")
    assert letter.error_code == "TIMEOUT"
    assert letter.explanation == (
        "failed 1 times, no time is left for another run; last: crm is slow"
    )
    assert world.journal.copies == []


def test_a_retry_that_begins_in_time_is_made_and_its_copy_keeps_the_deadline(world):
    world.handler(raising(TimeoutError()), policy=SLOW)
    assert isinstance(world.take(**expiring(31)), Retried)
    assert world.last_copy().headers["expires"] == expiring(31)["expires"]


def test_what_a_handler_asks_for_ends_at_the_deadline_too(world):
    world.handler(raising(RetryLater(60)))
    assert world.take(**expiring(60)).letter.reason == "out_of_time"
    assert isinstance(world.take(**expiring(61), event_id="e2"), Retried)


@pytest.mark.parametrize("expires", ["soon", 5, "", None])
def test_a_deadline_that_cannot_be_read_is_none(world, expires):
    world.handler(raising(TimeoutError()), policy=SLOW)
    assert isinstance(world.take(expires=expires), Retried)
