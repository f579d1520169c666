"""Which letters hold up later events of their aggregate, and what letters and facts hide."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.structlog.hook import details
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import HANDLER, ORDERED_HANDLER, PROJECTOR, Reason
from angzarr.dead_letters.masking import compiled
from angzarr.dead_letters.redaction import Redaction
from angzarr.delivery.delivery import DeadLettered, Retried, Skipped
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.unreadable import UnreadableMessages, damaged
from angzarr.errors import GiveUp
from angzarr.events import headers as names
from angzarr.ordering.lane import Order
from angzarr.resilience.category import Category, Verdict, VerdictRule
from angzarr.resilience.taxonomy import classify

PLACE = {names.DOMAIN: "order", names.ROOT: "o-1", names.SEQUENCE: 3}


def order(**options):
    return Order(domains=frozenset({"order"}), types=frozenset({"OrderPaid"}), **options)


@pytest.fixture
def letter_of(world):
    def make(by_order, *, reason=Reason.REFUSED, kind=HANDLER, **headers):
        builder = DeadLetterBuilder(clock=world.clock, component="app", worker="host", version="1")
        handler = Handler(name="h", bind=lambda *_: None, order=by_order, component_type=kind)
        error = ValueError("no")
        delivery = world.delivery(**headers)
        seen = classify(error, now=world.clock.now())
        return builder.letter(delivery, handler, error, reason, seen)

    return make


@pytest.mark.parametrize(
    ("by_order", "registered", "kind"),
    [
        (None, HANDLER, HANDLER),
        (order(), HANDLER, ORDERED_HANDLER),
        (order(moves=True), PROJECTOR, PROJECTOR),
    ],
)
@pytest.mark.parametrize("form", Form)
def test_a_letter_says_what_kind_of_handler_failed_in_every_form(
    letter_of, by_order, registered, kind, form
):
    letter = letter_of(by_order, kind=registered, **PLACE)
    assert letter.component_type == kind
    assert decode(*encode(letter, form)).component_type == kind


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {names.SEQUENCE: 3},
        {**PLACE, names.DOMAIN: "cart"},
        {**PLACE, names.SEQUENCE: 0},  # before the first of its aggregate
    ],
)
def test_an_event_without_a_place_in_a_lane_holds_nothing_up(letter_of, headers):
    letter = letter_of(order(first=1), reason=Reason.UNDELIVERABLE, **headers)
    assert letter.component_type == HANDLER


def test_a_second_body_under_one_event_id_is_not_what_its_lane_waits_for(letter_of):
    assert letter_of(order(), reason=Reason.CONFLICT, **PLACE).component_type == HANDLER


SECRET = "hunter-two"
REDACTION = Redaction.of(["**.password"], [compiled(r"Bearer \S+")])
TEXT = f"login of {SECRET} with Bearer abc refused"
SHOWN = "login of [redacted] with [redacted] refused"


def raising(error):
    def call(_data, _context):
        raise error

    return call


@pytest.fixture
def failing(world):
    """Take a delivery whose handler fails with *error*; return outcome and fact."""

    def failing(error):
        world.hide = REDACTION.of_texts
        world.handler(raising(error))
        outcome = world.take(data={"password": SECRET})
        return outcome, world.journal.facts[-1]

    return failing


@pytest.mark.parametrize(
    ("error", "kind"), [(GiveUp(TEXT), DeadLettered), (ConnectionResetError(TEXT), Retried)]
)
def test_no_fact_and_no_line_shows_what_the_letter_hides(failing, error, kind):
    outcome, fact = failing(error)
    assert isinstance(outcome, kind)
    assert fact.data["error_message"] == SHOWN
    line = details(outcome)
    assert line["error"] == SHOWN
    for said in (json.dumps(dict(fact.data)), json.dumps(line, default=str)):
        assert SECRET not in said
        assert "abc" not in said


def test_failures_are_of_one_group_whatever_secret_they_tell(world):
    world.hide = REDACTION.of_texts
    world.handler(lambda event, _context: raising(GiveUp(f"no {event['password']}"))(0, 0))
    groups = {
        world.take(data={"password": secret}, event_id=secret).letter.fingerprint
        for secret in ("hunter-two", "rabbit")
    }
    assert len(groups) == 1


def test_the_letter_on_its_way_keeps_its_message_whole(world, failing):
    outcome, _ = failing(GiveUp(TEXT))
    assert SECRET.encode() in outcome.letter.message.body
    assert outcome.letter.explanation == f"not retryable: {SHOWN}"
    assert SECRET not in outcome.letter.error_stack
    assert outcome.error.args == (TEXT,)


def test_what_is_skipped_for_its_error_hides_its_text(world):
    world.hide = REDACTION.of_texts
    world.handler(
        raising(KeyError(TEXT)),
        verdicts=(VerdictRule(category=Category.UNKNOWN, verdict=Verdict.SKIP),),
    )
    outcome = world.take(data={"password": SECRET})
    assert isinstance(outcome, Skipped)
    assert outcome.reason == f"unknown: '{SHOWN}'"


def test_without_redaction_texts_are_what_they_were(world):
    world.handler(raising(ConnectionResetError(TEXT)))
    assert world.take(data={"password": SECRET}).text == TEXT


def test_what_cannot_be_read_hides_its_text_in_letter_and_fact(world, tmp_path):
    facts, letters = MemoryFactLog(), MemoryDeadLetterQueue(str(tmp_path))
    builder = DeadLetterBuilder(
        clock=world.clock, component="a", worker="w", version="1", hide=REDACTION.of_texts
    )
    salvage = UnreadableMessages(
        letter_builder=builder,
        handlers=Handlers(),
        dead_letters=letters,
        facts=facts,
        clock=world.clock,
    )
    salvage.take(damaged(b"\xff", "orders"), ValueError(TEXT.replace(SECRET, "x")), "BAD")
    (receipt,) = letters.receive(["unknown"], limit=1, wait=timedelta(0))
    letters.done([receipt])
    (fact,) = facts.read()
    for said in (receipt.raw.decode(), json.dumps(dict(fact.data))):
        assert "Bearer" not in said
        assert "[redacted]" in said


def test_a_duplicate_is_not_told_what_the_letter_hides(world, failing):
    failing(GiveUp(TEXT))
    refused = world.take(data={"password": SECRET})
    assert str(refused.error) == f"failed before with GiveUp: {SHOWN}"
