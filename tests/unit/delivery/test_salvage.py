"""A message whose envelope cannot be read ends as a letter with its bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.dead_letters.codec import decode, encode
from angzarr.dead_letters.letter import Reason, unreadable_letter_id
from angzarr.delivery.autopsy import Autopsy
from angzarr.delivery.salvage import Salvage
from angzarr.errors import DeadLetterQueueUnavailable

NOW = datetime(2026, 11, 21, tzinfo=UTC)
RAW = b"\xff{not json"


class Clock:
    def now(self):
        return NOW


@pytest.fixture
def facts():
    return MemoryFactLog()


@pytest.fixture
def letters():
    return MemoryDeadLetterQueue("salvage")


@pytest.fixture
def salvage(letters, facts):
    autopsy = Autopsy(
        clock=Clock(), component="shop", worker="w1", version="2",
        domain_of_queue={"orders": "order"}.get,
    )  # fmt: skip
    return Salvage(autopsy=autopsy, dead_letters=letters, facts=facts, clock=Clock())


def received(letters, *domains):
    receipts = letters.receive(domains, limit=9, wait=timedelta(0))
    letters.done(receipts)
    return [receipt.letter for receipt in receipts]


def test_the_letter_keeps_bytes_and_queue_and_goes_to_the_queues_domain(salvage, letters):
    salvage.take(RAW, "orders", ValueError("the envelope is not JSON"))
    (letter,) = received(letters, "order")
    assert (letter.message.body, letter.message.queue) == (RAW, "orders")
    assert letter.id == unreadable_letter_id("orders", RAW)
    assert letter.reason is Reason.UNDELIVERABLE
    assert letter.explanation == "could not be delivered: the envelope is not JSON"
    assert (letter.worker, letter.version, letter.component) == ("w1", "2", "shop")


def test_without_a_domain_of_its_queue_it_is_unknown(salvage, letters):
    salvage.take(RAW, "elsewhere", ValueError("x"))
    (letter,) = received(letters, "unknown")
    assert letter.domain == "unknown"


def test_the_letter_survives_its_wire_form(salvage, letters):
    salvage.take(RAW, "orders", ValueError("x"))
    (letter,) = received(letters, "order")
    assert decode(*encode(letter)).message.body == RAW


def test_what_the_queue_refuses_is_an_error_and_no_fact(salvage, letters, facts, monkeypatch):
    monkeypatch.setattr(letters, "put", lambda _letters: ["full"])
    with pytest.raises(DeadLetterQueueUnavailable, match="full"):
        salvage.take(RAW, "orders", ValueError("x"))
    assert list(facts.read()) == []


def test_it_leaves_one_fact_however_often_it_is_done(salvage, letters, facts):
    for _ in range(2):
        salvage.take(RAW, "orders", ValueError("x"))
    (fact,) = {fact.id: fact for fact in facts.read()}.values()
    assert (fact.type, fact.subtype) == ("error", "undeliverable")
    assert fact.data["queue_name"] == "orders"
