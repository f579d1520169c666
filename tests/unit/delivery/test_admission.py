"""What stops a delivery, what is counted and called instead; which handlers are held back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.admission import HeldHandlers
from angzarr.delivery.delivery import DeadLettered, Handled, Postponed, Retried
from angzarr.delivery.handlers import Handler
from angzarr.errors import CircuitOpenError, GiveUp, Postpone, RetryLater, Skip
from angzarr.events import headers as names
from angzarr.ordering.lane import Order
from angzarr.resilience.breaker import Barred, BreakerSettings, Permit, Phase
from angzarr.resilience.breaker_guard import guards
from angzarr.resilience.switches import Selector, SwitchAction

TOUCHY = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))


@pytest.fixture(autouse=True)
def touchy(world):
    world.breakers = InProcessBreakers(default=TOUCHY, clock=world.clock)


def phase(world, name="crm"):
    return world.breakers.states()[name].phase


def raising(error):
    def handle(_data, _context):
        raise error

    return handle


def half_open(world, name="crm"):
    permit = world.breakers.admit(name, "before")
    world.breakers.record(permit, ok=False, took=timedelta(0))
    world.clock.sleep(TOUCHY.open_for)


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (ConnectionError("reset"), True),
        (TimeoutError(), True),
        (ValueError("a bug"), False),
        (PermissionError("denied"), False),
        (GiveUp("no"), False),
        (Skip("refused"), False),
        (RetryLater(timedelta(seconds=1), cause=ConnectionError()), True),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else str(given),
)
def test_only_what_says_that_the_dependency_is_ill_counts(world, error, opens):
    world.handler(raising(error), breaker="crm")
    world.take()
    assert phase(world) is (Phase.OPEN if opens else Phase.CLOSED)


def test_all_breakers_of_a_handler_must_let_it_through(world):
    world.handler(lambda _data, _context: 1, breaker=("crm", "mail"))
    world.breakers.isolate("mail", by="me")
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert outcome.breaker == "mail"


def test_a_probe_that_another_breaker_stops_is_free_again(world):
    world.handler(lambda _data, _context: 1, breaker=("crm", "mail"))
    world.breakers.isolate("mail", by="me")
    half_open(world)
    world.take()
    assert isinstance(world.breakers.admit("crm", "next"), Permit)


def test_each_breaker_counts_the_errors_it_is_named_with(world):
    counted = {"crm": ConnectionResetError, "mail": (TimeoutError, BrokenPipeError)}
    world.handler(raising(TimeoutError()), breaker=counted)
    world.take()
    assert (phase(world, "crm"), phase(world, "mail")) == (Phase.CLOSED, Phase.OPEN)


@pytest.mark.parametrize("ends", [Postpone(), KeyboardInterrupt()], ids=["postponed", "cut"])
def test_a_probe_that_says_nothing_is_free_again(world, ends):
    world.handler(raising(ends), breaker="crm")
    half_open(world)
    with suppress(KeyboardInterrupt):
        world.take()
    assert phase(world) is Phase.HALF_OPEN
    assert isinstance(world.breakers.admit("crm", "next"), Permit)


def test_a_slow_probe_opens_the_breaker_again(world):
    slow = BreakerSettings(
        min_calls=1, failures_in_a_row=1, slow_call=timedelta(seconds=2), ramp_up=timedelta(0)
    )
    world.breakers = InProcessBreakers(default=slow, clock=world.clock)
    world.handler(lambda _data, _context: world.clock.sleep(timedelta(seconds=3)), breaker="crm")
    half_open(world)
    assert isinstance(world.take(), Handled)
    assert phase(world) is Phase.OPEN


def test_a_breaker_around_one_call_postpones_without_an_attempt(world):
    def handle(_data, context):
        with context.breaker("crm"):
            raise ConnectionError

    world.handler(handle)
    assert isinstance(world.take(event_id="a"), Retried)
    outcome = world.take(event_id="b")
    assert isinstance(outcome, Postponed)
    assert outcome.breaker == "crm"
    assert TOUCHY.open_for <= outcome.delay <= TOUCHY.open_for * 1.1
    assert world.last_copy().headers[names.ATTEMPT] == 1


def test_what_an_event_says_may_be_the_key_of_a_breaker(world):
    def handle(_data, context):
        with context.breaker("crm", key=context.event.id):
            raise ConnectionError

    world.handler(handle)
    for event_id in ("Acme: Ltd.", "other"):
        assert isinstance(world.take(event_id=event_id), Retried)
    assert phase(world, "crm:Acme%3A%20Ltd.") is Phase.OPEN
    assert phase(world, "crm:other") is Phase.OPEN


def test_an_error_is_counted_once_by_the_breaker_next_to_the_call(world):
    def handle(_data, context):
        with context.breaker("crm"):
            raise ConnectionError

    world.handler(handle, breaker="whole")
    world.take()
    assert (phase(world, "crm"), phase(world, "whole")) == (Phase.OPEN, Phase.CLOSED)


def test_an_inner_breaker_that_refuses_says_nothing_to_the_outer_one(world):
    def handle(_data, context):
        with context.breaker("crm"):
            pytest.fail("must not run")

    world.handler(handle, breaker="whole")
    world.breakers.isolate("crm", by="me")
    half_open(world, "whole")
    assert isinstance(world.take(), Postponed)
    assert phase(world, "whole") is Phase.HALF_OPEN
    assert isinstance(world.breakers.admit("whole", "next"), Permit)


def fallback(delivery, _context):
    return lambda: f"kept for later: {delivery.args[0]}"


def test_a_fallback_is_called_while_the_breaker_is_open(world):
    world.breakers.isolate("crm", by="me")
    world.handler(
        lambda _data, _context: pytest.fail("must not run"), breaker="crm", fallback=fallback
    )
    assert world.take().value == "kept for later: data"


def test_a_fallback_is_called_when_a_breaker_inside_the_handler_is_open(world):
    def handle(_data, context):
        with context.breaker("crm"):
            return 1

    world.handler(handle, fallback=fallback)
    assert world.take(event_id="a").value == 1
    world.breakers.isolate("crm", by="me")
    assert world.take(event_id="b").value == "kept for later: data"


def test_a_fallback_that_fails_takes_the_ordinary_road(world):
    world.breakers.isolate("crm", by="me")
    world.handler(None, breaker="crm", fallback=lambda *_: raising(TimeoutError()).__get__(0))
    assert isinstance(world.take(), DeadLettered | Retried)


def test_a_fallback_behind_an_open_breaker_too_is_postponed(world):
    def refused():
        raise CircuitOpenError("mail", timedelta(seconds=5))

    world.breakers.isolate("crm", by="me")
    world.handler(None, breaker="crm", fallback=lambda *_: refused)
    assert isinstance(world.take(), Postponed)


def test_nothing_waits_for_ever_behind_a_breaker_inside_a_handler(world):
    def handle(_data, context):
        with context.breaker("crm"):
            pytest.fail("must not run")

    world.breakers.isolate("crm", by="me")
    world.handler(handle, max_age=timedelta(minutes=1))
    assert isinstance(world.take(), Postponed)
    world.clock.sleep(timedelta(hours=1))
    assert world.take(world.last_copy()).letter.reason is Reason.TOO_OLD


def test_an_isolated_breaker_bars_for_as_long_as_an_open_one():
    breakers = InProcessBreakers(default=TOUCHY)
    breakers.isolate("crm", by="me")
    barred = breakers.known("crm")
    assert isinstance(barred, Barred)
    assert barred.retry_after == TOUCHY.open_for


DAY = timedelta(days=1)


def test_only_what_waits_without_being_let_in_grows_too_old(world):
    world.handler(lambda _data, _context: 1, breaker="crm", max_age=DAY)
    paused = world.switches.put(Selector(handler="h"), SwitchAction.PAUSE, by="me")
    assert isinstance(world.take(), Postponed)
    world.clock.sleep(2 * DAY)
    world.switches.resume([paused.id], by="me")
    world.breakers.isolate("crm", by="me")
    assert isinstance(world.take(world.last_copy()), Postponed), "a pause does not count"
    world.clock.sleep(DAY)
    assert isinstance(world.take(world.last_copy()), Postponed)
    assert isinstance(world.take(world.last_copy()), Postponed), "it came early"
    world.clock.sleep(timedelta(hours=1))
    assert world.take(world.last_copy()).letter.error_code == "CIRCUIT_OPEN"


def test_who_was_let_in_meanwhile_is_not_too_old(world):
    world.handler(raising(Postpone()), breaker="crm", max_age=DAY)
    world.breakers.isolate("crm", by="me")
    assert names.HELD_SINCE in held_back(world)
    world.breakers.reset("crm", by="me")
    world.clock.sleep(timedelta(hours=1))
    assert names.HELD_SINCE not in held_back(world, world.last_copy())
    world.breakers.isolate("crm", by="me")
    world.clock.sleep(2 * DAY)
    assert isinstance(world.take(world.last_copy()), Postponed)


def held_back(world, message=None):
    assert isinstance(world.take(message), Postponed)
    return world.last_copy().headers


def test_nothing_grows_too_old_in_a_ramp_up(world):
    slowly = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=DAY)
    world.breakers = InProcessBreakers(default=slowly, clock=world.clock)
    world.handler(lambda _data, _context: 1, breaker="crm", max_age=DAY)
    world.breakers.isolate("crm", by="me")
    waiting = []
    for number in range(20):
        assert isinstance(world.take(event_id=f"e{number}"), Postponed)
        waiting.append(world.last_copy())
    world.clock.sleep(3 * DAY)
    world.breakers.reset("crm", by="me")
    outcomes = [world.take(message) for message in waiting]
    assert {type(outcome) for outcome in outcomes} == {Handled, Postponed}


@pytest.mark.parametrize("counted", [{"crm": ConnectionError}, {"crm": Exception}])
def test_what_an_error_was_raised_for_is_what_counts(world, counted):
    asked = RetryLater(timedelta(seconds=1), cause=ConnectionResetError())
    world.handler(raising(asked), breaker=counted)
    world.take()
    assert phase(world) is Phase.OPEN


def test_a_refused_call_that_the_task_asks_to_retry_uses_no_attempt(world):
    refused = CircuitOpenError("mail", timedelta(seconds=5))
    world.handler(raising(RetryLater(timedelta(seconds=1), cause=refused)))
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert outcome.breaker == "mail"
    assert world.last_copy().headers[names.ATTEMPT] == 1


def test_an_error_whose_own_code_fails_is_an_error_like_any(world):
    class Odd(ConnectionError):
        def __getattr__(self, name):
            raise RuntimeError(name)

    world.handler(raising(Odd()), breaker="crm")
    assert isinstance(world.take(), Retried)


PAUSE, DROP = SwitchAction.PAUSE, SwitchAction.DROP
SYNC = Handler(
    name="shop.sync",
    bind=None,
    event_type="order",
    domain="sales",
    breakers=guards(["ldap", "crm"]),
)


@pytest.fixture
def breakers():
    return InProcessBreakers()


@pytest.fixture
def switches():
    return InProcessSwitches()


@pytest.fixture
def held(breakers, switches):
    """What is held back where only the breaker "crm" pauses queues."""
    return HeldHandlers(switches=switches, breakers=breakers, pausing={"crm"}.__contains__)


@pytest.mark.parametrize(
    "selector",
    [
        Selector(),
        Selector(handler="shop.sync"),
        Selector(handler="shop.*"),
        Selector(event_type="order"),
        Selector(domain="sales"),
        Selector(handler="shop.sync", event_type="order", domain="sales"),
    ],
    ids=str,
)
def test_a_pause_of_all_that_a_handler_takes_holds_it_back(held, switches, selector):
    put = switches.put(selector, PAUSE, by="ada", reason="why")
    assert "paused by ada: why" in held.why(SYNC)
    switches.resume([put.id], by="ada")
    assert held.why(SYNC) is None


def test_a_pause_of_one_type_does_not_hold_back_who_is_sent_all_types(held, switches):
    order = Order(domains=frozenset({"sales"}), types=frozenset({"order"}))
    switches.put(Selector(event_type="order"), PAUSE, by="ada")
    assert held.why(SYNC) is not None
    assert held.why(replace(SYNC, order=order)) is None
    switches.put(Selector(handler="shop.sync"), PAUSE, by="ada")
    assert held.why(replace(SYNC, order=order)) is not None


@pytest.mark.parametrize(
    ("selector", "action"),
    [
        (Selector(tenant="acme"), PAUSE),
        (Selector(handler="shop.sync", tenant="acme"), PAUSE),
        (Selector(handler="shop.sync", event_type="other"), PAUSE),
        (Selector(domain="other"), PAUSE),
        (Selector(handler="shop.sync"), DROP),
    ],
    ids=str,
)
def test_what_is_about_some_deliveries_or_drops_them_holds_no_handler_back(
    held, switches, selector, action
):
    switches.put(selector, action, by="ada", reason="why")
    assert held.why(SYNC) is None


def test_an_open_breaker_that_pauses_queues_holds_back_who_names_it(held, breakers):
    breakers.isolate("ldap", by="ada")
    assert held.why(SYNC) is None, "it pauses no queues"
    breakers.isolate("crm", by="ada")
    assert held.why(SYNC) == "breaker crm is open"
    assert held.why(replace(SYNC, breakers=())) is None
    breakers.reset("crm", by="ada")
    assert held.why(SYNC) is None


def test_a_wave_in_its_domain_holds_it_back_until_it_is_reset(held, breakers):
    breakers.isolate("wave:sales", by="ada")
    assert held.why(SYNC) == "domain sales is held back"
    assert held.why(replace(SYNC, domain="other")) is None
    assert held.why(replace(SYNC, domain=None)) is None
    breakers.reset("wave:sales", by="ada")
    assert held.why(SYNC) is None


def test_a_wave_that_only_a_child_has_seen_holds_it_back(held):
    told = replace(held, domains={"sales"})
    assert told.why(SYNC) == "domain sales is held back"
    assert told.why(replace(SYNC, domain="other")) is None


def test_a_handler_with_a_fallback_runs_while_a_breaker_is_open_but_not_in_a_wave_or_a_pause(
    held, breakers, switches
):
    handler = replace(SYNC, fallback=lambda *_: None)
    breakers.isolate("crm", by="ada")
    assert held.why(handler) is None
    breakers.isolate("wave:sales", by="ada")
    assert held.why(handler) == "domain sales is held back"
    switches.put(Selector(handler="shop.sync"), PAUSE, by="ada", reason="why")
    assert "paused by ada" in held.why(handler)
