from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dead_letters import a_letter

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.holding_queue import HoldingQueue, payload_hold
from angzarr.dead_letters.queue import RawLetter
from angzarr.errors import StoreUnavailable
from angzarr.payloads.holders import hold_of, holding, letter_holder
from angzarr.resilience.idempotency import RECORD_LIFE
from memory_payloads import MemoryPayloadStore

DAY = timedelta(days=1)
NOW = datetime(2026, 5, 4, 3, 2, 1, 7, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class World:
    def __init__(self, name):
        self.holders, self.store, self.away = MemoryPayloadHolders(), MemoryPayloadStore(), False
        self.queue = MemoryDeadLetterQueue(name)
        self.holding = HoldingQueue(self.queue, self.open)

    def open(self):
        if self.away:
            raise StoreUnavailable("redis is away")
        return self.holders

    def letter(self, number, *, registered=True):
        name = holding(self.holders, "a message") if registered else None
        reference = self.store.put(b"body", name)
        letter = a_letter("holding", number)
        return replace(letter, message=replace(letter.message, body=b""), payload=reference)


@pytest.fixture
def world(unique):
    return World(unique)


@pytest.fixture
def unique(request):
    return request.node.name


def test_a_letter_holds_its_body_once_it_is_put(world):
    letter, whole = world.letter(1), a_letter("holding", 2)
    assert world.holding.put([whole, letter, letter]) == [None, None, None]
    holders = world.holders.holders_of(letter.payload.uri)
    assert holders == {"a message", letter_holder(letter.id, letter.sent_to_dlq_at)}
    taken = world.holding.receive(["holding"], limit=9, wait=timedelta(0))
    assert {one.letter.id for one in taken} == {letter.id, whole.id}
    world.holding.done(taken)
    assert world.holders.holders_of(letter.payload.uri) == holders, "the ledger needs it"


def test_a_hold_that_cannot_be_noted_keeps_its_letter_and_no_other(world):
    letter, whole = world.letter(1), a_letter("holding", 2)
    world.away = True
    assert world.holding.put([letter, whole, letter]) == ["redis is away", None, "redis is away"]
    assert world.holding.put([letter]) == ["redis is away"]
    assert world.holding.put([]) == []
    world.away = False
    assert world.holding.put([letter]) == [None]
    assert payload_hold(letter).holder in world.holders.holders_of(letter.payload.uri)


def test_a_body_that_was_not_registered_is_not_asked_for(world):
    world.away = True
    assert world.holding.put([world.letter(1, registered=False)]) == [None]
    raw = RawLetter(domain="holding", raw=b"\xff", content_type="x")
    assert world.holding.put_raw([raw]) == world.queue.put_raw([raw])


@pytest.mark.parametrize("uri", [
    "", "s3://b/aa/x", "-0123456789abcdef", "s3://b\x00/x-0123456789abcdef",
    "s3://b/x-0123456789ABCDEF", "s3://b/\ud800-0123456789abcdef",
    "s3://" + "x" * 2000 + "-0123456789abcdef",
])  # fmt: skip
def test_a_hostile_reference_is_no_hold(world, uri):
    letter = world.letter(1)
    hostile = replace(letter, payload=replace(letter.payload, uri=uri))
    assert payload_hold(hostile) is None
    world.away = True
    assert world.holding.put([hostile]) == [None]


def test_any_id_of_a_letter_makes_a_holder_that_a_store_takes(world):
    for odd in ("a\x00b", "\ud800", "x" * 10_000):
        assert len(letter_holder(odd, NOW)) < 120
        assert letter_holder(odd, NOW).isprintable()
    hold = hold_of(world.letter(1).payload.uri, letter_holder("é:1", NOW))
    assert hold.holder == "letter:é:1@2026-05-04"


def test_a_letter_has_one_holder_in_every_form_and_time_zone(world):
    elsewhere = timezone(timedelta(hours=-9))
    for at in (NOW, NOW.replace(microsecond=0), FIRST):
        letter = replace(world.letter(1), sent_to_dlq_at=at)
        for form in Form:
            assert payload_hold(decode(*encode(letter, form))) == payload_hold(letter)
    assert letter_holder("a", NOW.astimezone(elsewhere)) == letter_holder("a", NOW)


def test_any_time_makes_a_holder():
    zones = [timezone(timedelta(hours=hours)) for hours in (-23, 0, 23)]
    times = [one.replace(tzinfo=zone) for zone in zones for one in (FIRST, LAST)]
    made = {letter_holder("a", at) for at in times}
    assert {one.partition("@")[2] for one in made} == {
        "0001-01-01", "9999-12-31", "-719163 days", "2932897 days",
    }  # fmt: skip


@given(st.timedeltas(0 * DAY, 9_000 * DAY), st.timedeltas(DAY, 9 * DAY))
def test_letters_that_are_a_day_apart_have_two_holders(since, later):
    assert letter_holder("a", NOW + since) != letter_holder("a", NOW + since + later)


def test_a_letter_that_is_made_anew_for_each_try_holds_once(world):
    letter = world.letter(1)
    for seconds in range(3):
        again = replace(letter, sent_to_dlq_at=NOW + timedelta(seconds=seconds))
        assert world.holding.put([again]) == [None]
    holders = world.holders.holders_of(letter.payload.uri)
    assert holders == {"a message", letter_holder(letter.id, NOW)}


def test_an_event_that_fails_once_more_has_another_holder(world):
    first = world.letter(1)
    later = replace(first, sent_to_dlq_at=first.sent_to_dlq_at + RECORD_LIFE)
    assert world.holding.put([first, later]) == [None, None]
    world.holders.release([payload_hold(first)])
    assert payload_hold(later).holder in world.holders.holders_of(later.payload.uri)
