"""A poison wave is kept, not drained into the dead-letter queue; and it ends by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.hand_clock import seldom_by

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Postponed
from angzarr.delivery.poison_wave import PoisonWaveBreaker
from angzarr.errors import GiveUp
from angzarr.events import headers as names
from angzarr.resilience.breaker import BreakerSettings

LEAST = 10
MINUTE = timedelta(minutes=1)


class Guarded:
    """A road with a guard, and a handler that fails as long as it is told to."""

    def __init__(self, world):
        self.world = world
        self.ill = {"order": True, "invoice": False}
        self.held = []
        self.number = 0
        for domain in self.ill:
            world.handler(self.handle_for(domain), name=domain, domain=domain)
        plain = world.road()
        settings = BreakerSettings(
            window=MINUTE, min_calls=LEAST, failure_share=0.8, failures_in_a_row=2**31,
            open_for=MINUTE, ramp_up=timedelta(0),
        )  # fmt: skip
        waves = PoisonWaveBreaker(
            breakers=InProcessBreakers(default=settings, clock=world.clock),
            handlers=world.handlers,
            letter_builder=plain.failure_policy.letter_builder,
            facts=plain.settler.facts, clock=world.clock,
            on_held=lambda domain, until: self.held.append((domain, until)),
            seldom=seldom_by(world.clock),
        )  # fmt: skip
        self.road = replace(plain, poison_wave_breaker=waves)

    def handle_for(self, domain):
        def handle(_data, _context):
            if self.ill[domain]:
                raise GiveUp("the schema changed")

        return handle

    def take(self, task="order", **headers):
        self.number += 1
        made = self.world.message(event_id=f"e{self.number}", task=task, **headers)
        return self.road.take(self.world.delivery(made))

    def letters(self):
        return len(self.world.journal.letters)


@pytest.fixture
def guarded(world):
    return Guarded(world)


def test_a_wave_fills_the_dead_letter_queue_no_further_than_it_takes_to_see_it(guarded):
    outcomes = [guarded.take() for _ in range(100)]
    assert guarded.letters() == LEAST - 1
    kept = outcomes[LEAST - 1 :]
    assert all(isinstance(outcome, Postponed) and outcome.wave == "order" for outcome in kept)
    assert len(guarded.world.journal.copies) == len(kept), "each is kept as a copy"


def test_the_one_that_shows_the_wave_is_kept_with_its_attempt_and_claim_given_up(guarded, world):
    for _ in range(LEAST):
        guarded.take()
    copy = world.last_copy()
    assert copy.headers["angzarr-attempt"] == 1
    assert copy.headers["angzarr-hop"] == 1
    assert world.journal.entries[-3:] == ["copy", "fact", "wait"]


def test_other_domains_go_on(guarded):
    for _ in range(50):
        guarded.take()
    assert isinstance(guarded.take("invoice"), Handled)


def test_a_share_below_the_limit_is_no_wave(guarded):
    for n in range(200):
        guarded.ill["order"] = n % 2 == 0
        guarded.take()
    assert guarded.letters() == 100


def test_one_alarm_a_minute_with_a_fact_and_a_word_to_the_parent(guarded, world, caplog):
    for _ in range(60):
        guarded.take()
        world.clock.sleep(timedelta(seconds=1))
    alarms = [line for line in caplog.records if line.getMessage().startswith("poison_wave")]
    facts = [fact for fact in world.journal.facts if fact.subtype == "poison_wave"]
    assert len(alarms) == len(facts) == 1
    assert "'order'" in alarms[0].getMessage()
    assert {domain for domain, _ in guarded.held} == {"order"}


def test_while_it_lasts_one_event_a_minute_is_tried_and_kept_too(guarded, world):
    for _ in range(LEAST):
        guarded.take()
    for _ in range(10):
        world.clock.sleep(MINUTE)
        tried = [guarded.take() for _ in range(5)]
        assert all(isinstance(outcome, Postponed) for outcome in tried)
    assert guarded.letters() == LEAST - 1


def test_it_ends_when_two_events_tried_are_handled(guarded, world):
    for _ in range(LEAST):
        guarded.take()
    guarded.ill["order"] = False
    world.clock.sleep(MINUTE)
    assert [type(guarded.take()) for _ in range(5)] == [Handled] * 5


def test_what_waited_for_its_maximum_age_is_not_kept_for_ever(guarded, world):
    for _ in range(LEAST):
        guarded.take()
    long_ago = (world.clock.now() - timedelta(days=2)).isoformat()
    assert isinstance(guarded.take(**{names.FIRST_ATTEMPT_AT: long_ago}), Postponed)
    assert isinstance(guarded.take(**{names.HELD_SINCE: long_ago}), DeadLettered)


@pytest.mark.parametrize("reason", [Reason.POISON, Reason.CONFLICT, Reason.REVOKED, Reason.TOO_OLD])
def test_letters_that_no_run_would_change_are_no_sign_and_are_written(guarded, world, reason):
    waves, delivery = guarded.road.poison_wave_breaker, world.delivery(task="order")
    permit = waves.enter(delivery)
    refused = guarded.take()
    other = replace(refused, letter=replace(refused.letter, reason=reason))
    for _ in range(LEAST):
        assert waves.judged(delivery, other, permit) is other
    while isinstance(guarded.take(), DeadLettered):
        pass
    assert guarded.number == LEAST
    assert waves.judged(delivery, other, permit) is other


def test_what_is_postponed_without_a_claim_remembers_when_it_first_came(guarded, world):
    for _ in range(LEAST + 1):
        guarded.take()
    assert world.last_copy().headers["angzarr-first-attempt-at"] == world.clock.now().isoformat()


def test_duplicates_say_nothing_about_a_domain(guarded, world):
    handled = world.message(event_id="same", task="invoice")
    guarded.road.take(world.delivery(handled))
    for _ in range(50):
        assert isinstance(guarded.road.take(world.delivery(handled)), Duplicate)
    guarded.ill["invoice"] = True
    for _ in range(LEAST - 2):
        guarded.take("invoice")
    assert guarded.letters() == LEAST - 2
    guarded.take("invoice")
    assert guarded.letters() == LEAST - 2, "one handled and nine dead are a wave"


def test_domains_that_only_messages_name_are_one(guarded, world):
    world.handler(guarded.handle_for("order"), name="plain")
    outcomes = [guarded.take("plain", **{"angzarr-domain": f"made-up-{n}"}) for n in range(LEAST)]
    assert isinstance(outcomes[-1], Postponed)
    assert outcomes[-1].wave == "unknown"
