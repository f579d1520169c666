"""Switches on the road: who waits for a person, who is dropped, and what is said of it."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.adapters.structlog.hook import said_of
from angzarr.delivery.breaker_log import SwitchLog, change_fact
from angzarr.delivery.delivery import Duplicate, Handled, Postponed, Skipped
from angzarr.delivery.poison_wave import PoisonWaveBreaker, breaker_of
from angzarr.events import headers as names
from angzarr.resilience.breaker import Permit
from angzarr.resilience.idempotency import Claimed
from angzarr.resilience.switches import (
    LONGEST_WAIT,
    SHORTEST_WAIT,
    Selector,
    Switch,
    SwitchAction,
    SwitchChange,
)
from hand_clock import START

PAUSE, DROP = SwitchAction.PAUSE, SwitchAction.DROP
HANDLER = Selector(handler="h")


def must_not_run(_data, _context):
    pytest.fail("must not run")


def test_a_paused_delivery_waits_without_an_attempt_and_is_handled_when_it_is_resumed(world):
    world.handler(lambda data, _context: data)
    paused = world.switches.put(HANDLER, PAUSE, by="ada", reason="the CRM moves")
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert outcome.claimed
    assert outcome.delay == SHORTEST_WAIT
    assert "paused by ada: the CRM moves" in outcome.why
    assert paused.id in outcome.why
    copy = world.last_copy()
    assert (copy.headers[names.ATTEMPT], copy.headers[names.HOP]) == (1, 1)
    assert "wait" in world.journal.entries
    world.switches.resume([paused.id], by="ada")
    world.clock.sleep(outcome.delay)
    assert world.take(copy).value == "data"


def test_a_pause_may_last_longer_than_anything_else_may(world):
    world.handler(must_not_run, max_age=timedelta(minutes=1))
    world.switches.put(HANDLER, PAUSE, by="ada")
    world.take()
    for _ in range(20):
        world.clock.sleep(timedelta(days=1))
        assert isinstance(world.take(world.last_copy()), Postponed)
    assert world.last_copy().headers[names.ATTEMPT] == 1
    assert world.journal.letters == []


def test_what_was_paused_is_not_too_old_to_wait_for_a_breaker_behind_it(world):
    world.handler(must_not_run, breaker="crm", max_age=timedelta(minutes=1))
    world.breakers.isolate("crm", by="ada")
    world.take()
    paused = world.switches.put(HANDLER, PAUSE, by="ada")
    world.clock.sleep(timedelta(days=2))
    world.take(world.last_copy())
    world.clock.sleep(timedelta(days=2))
    world.switches.resume([paused.id], by="ada")
    outcome = world.take(world.last_copy())
    assert isinstance(outcome, Postponed)
    assert outcome.breaker == "crm"
    assert world.journal.letters == []


def test_the_longer_the_pause_the_longer_the_wait(world):
    world.handler(must_not_run)
    world.switches.put(HANDLER, PAUSE, by="ada")
    world.clock.sleep(timedelta(seconds=40))
    assert world.take(event_id="a").delay == timedelta(seconds=10)
    world.clock.sleep(timedelta(hours=1))
    assert world.take(event_id="b").delay == LONGEST_WAIT / 2


def test_a_dropped_delivery_is_skipped_with_a_fact_that_names_the_switch(world):
    world.handler(must_not_run)
    put = world.switches.put(Selector(tenant="acme"), DROP, by="ada", reason="left us")
    outcome = world.take(**{names.TENANT_ID: "acme"})
    assert isinstance(outcome, Skipped)
    (fact,) = world.journal.facts
    assert (fact.subtype, fact.tenant_id) == ("skipped", "acme")
    assert fact.data["switch_id"] == put.id
    assert fact.data["reason"] == f"dropped by ada: left us (switch {put.id}, tenant acme)"
    assert world.journal.entries == ["fact", "complete"]
    assert said_of(outcome).event == "event_dropped"
    world.switches.resume([put.id], by="ada")
    assert isinstance(world.take(**{names.TENANT_ID: "acme"}), Duplicate), "what is dropped is gone"


def test_only_those_that_a_switch_means_are_stopped(world):
    world.handler(lambda data, _context: data)
    world.switches.put(Selector(tenant="acme"), DROP, by="ada", reason="left us")
    world.switches.put(Selector(event_type="other"), PAUSE, by="ada")
    world.switches.put(Selector(domain="order"), PAUSE, by="ada")
    assert isinstance(world.take(event_id="a"), Handled)
    assert isinstance(world.take(event_id="b", **{names.TENANT_ID: "bcme"}), Handled)
    assert isinstance(world.take(event_id="c", **{names.DOMAIN: "order"}), Postponed)
    assert isinstance(world.take(event_id="d", **{names.EVENT_TYPE: "other"}), Postponed)


def test_a_handlers_domain_counts_before_its_events(world):
    world.handler(must_not_run, domain="sales")
    world.switches.put(Selector(domain="sales"), PAUSE, by="ada")
    assert isinstance(world.take(**{names.DOMAIN: "order"}), Postponed)


def test_a_switch_is_asked_before_any_breaker(world):
    world.handler(
        must_not_run, breaker="crm", fallback=lambda *_: lambda: pytest.fail("must not run")
    )
    world.breakers.isolate("crm", by="ada")
    world.switches.put(HANDLER, PAUSE, by="ada")
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert outcome.breaker is None


@pytest.mark.parametrize("action", SwitchAction)
def test_a_delivery_that_was_claimed_with_its_fetch_lets_its_claim_go(world, action):
    world.handler(must_not_run)
    world.switches.put(HANDLER, action, by="ada", reason="why")
    delivery = world.delivery()
    (answer,) = world.store.claim([delivery.claim])
    assert isinstance(answer, Claimed)
    object.__setattr__(delivery, "answer", answer)
    assert world.road().take(delivery) is not None
    assert not world.store.owns(delivery.key, delivery.token)


# -- waves -----------------------------------------------------------------------------------


def test_what_is_dropped_says_nothing_of_its_domains_health(world):
    world.handler(must_not_run, domain="order")
    road = world.road()
    waves = PoisonWaveBreaker(
        breakers=world.breakers, handlers=world.handlers,
        letter_builder=road.failure_policy.letter_builder, facts=road.settler.facts,
        clock=world.clock,
    )  # fmt: skip
    delivery = world.delivery()
    permit = waves.enter(delivery)
    assert isinstance(permit, Permit)
    waves.judged(delivery, Skipped(reason="dropped", switch="id"), permit)
    assert not world.breakers.states()[breaker_of("order")].tallies
    waves.judged(delivery, Skipped(reason="refused"), permit)
    assert world.breakers.states()[breaker_of("order")].tallies


# -- what is said ----------------------------------------------------------------------------


class Facts:
    def __init__(self):
        self.facts = []

    def append(self, facts):
        self.facts += facts


def test_a_change_is_a_fact_and_each_process_that_honours_it_says_so_once(world, caplog):
    log = Facts()
    switches = InProcessSwitches(SwitchLog(facts=lambda: log), clock=world.clock)
    with caplog.at_level(logging.WARNING, "angzarr.flow"):
        put = switches.put(Selector("h", tenant="acme"), PAUSE, by="ada", reason="a b")
        switches.put(put.selector, DROP, by="bob", reason="why", until=timedelta(hours=1))
        switches.put(Selector(handler="h.*"), PAUSE, by="ada")
        switches.resume([put.id], by="eve")
    said = [record.message for record in caplog.records]
    assert [line.partition(":")[0] for line in said] == ["flow_switched"] * 3 + ["flow_resumed"]
    assert "dropped by bob: why" in said[1]
    first, second, third, fourth = log.facts
    assert {fact.subtype for fact in log.facts} == {"flow_switched"}
    assert (first.tenant_id, first.tool_id, first.data["previous"]) == ("acme", "h", None)
    assert second.data["previous"]["by"] == "ada"
    assert second.data["until"] == (world.clock.now() + timedelta(hours=1)).isoformat()
    assert third.tool_id is None
    assert (fourth.data["action"], fourth.data["by"]) == ("resume", "eve")
    assert len({fact.id for fact in log.facts}) == 4


def test_a_stored_line_break_forges_no_log_line(caplog):
    odd = Switch(
        selector=Selector("h\n"),
        action=PAUSE,
        by="a\x1b[31m",
        reason="b\nflow_resumed: c",
        at=START,
    )
    log = SwitchLog(facts=Facts)
    log.heard({}, {odd.id: odd})
    log.heard({odd.id: odd}, {})
    for record in caplog.records:
        assert record.message.isprintable()
        assert "flow_resumed: c" in record.message


def test_the_fact_of_what_was_removed_unread_names_it():
    change = SwitchChange(
        id="1-0", switch_id="garbage", selector=None, before=None, after=None,
        by="ada", reason="odd", at=START,
    )  # fmt: skip
    fact = change_fact(change)
    assert fact.id == "switch:garbage:1-0"
    assert (fact.data["action"], fact.data["switch_id"]) == ("resume", "garbage")
    assert (fact.data["handler"], fact.data["previous"], fact.tenant_id) == (None, None, None)


def test_a_fact_log_that_fails_undoes_no_switch(world, caplog):
    def broken():
        raise OSError("no disk")

    switches = InProcessSwitches(SwitchLog(facts=broken), clock=world.clock)
    put = switches.put(HANDLER, PAUSE, by="ada")
    assert list(switches.switches()) == [put]
    assert "fact_not_appended" in caplog.text
