"""A message that cannot be read ends as a letter with its bytes, also if it kills readers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.analysis.ledger.failure import entry_id_of, facts_of
from angzarr.dead_letters.codec import decode, encode
from angzarr.dead_letters.letter import Reason, letter_id, unreadable_letter_id
from angzarr.delivery.handlers import Domains, Handler, Handlers
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.unreadable import (
    MOST_DEATHS,
    ReadersDied,
    ReadMode,
    UnreadableMessages,
    damaged,
    reading_after,
)
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.events.event import Event, Message
from angzarr.ordering.lane import Order

NOW = datetime(2026, 11, 21, tzinfo=UTC)
RAW = b"\xff{not json"


class Clock:
    def now(self):
        return NOW


@pytest.fixture
def facts():
    return MemoryFactLog()


@pytest.fixture
def letters(unique_name):
    return MemoryDeadLetterQueue(unique_name)


@pytest.fixture
def salvage(letters, facts):
    builder = DeadLetterBuilder(
        clock=Clock(), component="shop", worker="w1", version="2",
        domains=Domains(read=frozenset({"billing", "crm"}), of_queue={"orders": "order"}.get),
    )  # fmt: skip
    handlers = Handlers()
    handlers.add(Handler(name="shop.sync", bind=None, domain="crm"))
    return UnreadableMessages(
        letter_builder=builder, handlers=handlers, dead_letters=letters, facts=facts, clock=Clock()
    )


def take(salvage, raw, queue, error):
    salvage.take(damaged(raw, queue), error, "DAMAGED_ENVELOPE")


def received(letters, *domains):
    receipts = letters.receive(domains, limit=9, wait=timedelta(0))
    letters.done(receipts)
    return [receipt.letter for receipt in receipts]


def test_the_letter_keeps_bytes_and_queue_and_goes_to_the_queues_domain(salvage, letters):
    take(salvage, RAW, "orders", ValueError("the envelope is not JSON"))
    (letter,) = received(letters, "order")
    assert (letter.message.body, letter.message.queue) == (RAW, "orders")
    assert letter.id == unreadable_letter_id("orders", RAW)
    assert letter.reason is Reason.UNDELIVERABLE
    assert letter.fingerprint == facts_of(replace(letter, fingerprint=""))["fingerprint"]
    assert facts_of(letter)["handler_name"] == "", "its component is the app"
    assert letter.explanation == "could not be delivered: the envelope is not JSON"
    assert (letter.worker, letter.version, letter.component) == ("w1", "2", "shop")


def test_without_a_domain_of_its_queue_it_is_unknown(salvage, letters):
    take(salvage, RAW, "elsewhere", ValueError("x"))
    (letter,) = received(letters, "unknown")
    assert letter.domain == "unknown"


def test_the_letter_survives_its_wire_form(salvage, letters):
    take(salvage, RAW, "orders", ValueError("x"))
    (letter,) = received(letters, "order")
    assert decode(*encode(letter)).message.body == RAW


def test_what_the_queue_refuses_is_an_error_and_no_fact(salvage, letters, facts, monkeypatch):
    monkeypatch.setattr(letters, "put", lambda _letters: ["full"])
    with pytest.raises(DeadLetterQueueUnavailable, match="full"):
        take(salvage, RAW, "orders", ValueError("x"))
    assert list(facts.read()) == []


def test_it_leaves_one_fact_however_often_it_is_done(salvage, letters, facts):
    for _ in range(2):
        take(salvage, RAW, "orders", ValueError("x"))
    (fact,) = {fact.id: fact for fact in facts.read()}.values()
    assert (fact.type, fact.subtype) == ("error", "undeliverable")
    assert fact.data["queue_name"] == "orders"


def bad_task(body=b"null", **headers):
    return Message(
        body=body, content_type="application/json", content_encoding="utf-8",
        headers={"task": "shop.sync", "id": "e1", **headers}, queue="orders",
    )  # fmt: skip


def test_a_malformed_task_goes_to_its_handlers_domain_with_all_its_headers(salvage, letters):
    salvage.take(bad_task(timelimit="soon"), ValueError("timelimit"), "INVALID_TASK")
    (letter,) = received(letters, "crm")
    assert (letter.handler, letter.error_code) == ("shop.sync", "INVALID_TASK")
    assert letter.message.headers["timelimit"] == "soon"
    assert letter.message.body == b"null"


@pytest.mark.parametrize(
    ("sequence", "found"), [(3, "ordered_handler"), (None, "handler"), ("x", "handler")]
)
def test_the_letter_of_what_has_a_place_in_a_lane_holds_it_up(salvage, letters, sequence, found):
    order = Order(domains=frozenset({"billing"}), types=frozenset({"Billed"}))
    salvage.handlers.add(Handler(name="shop.list", bind=None, domain="billing", order=order))
    place = {"angzarr-domain": "billing", "angzarr-root": "r", "angzarr-sequence": sequence}
    salvage.take(bad_task(task="shop.list", **place), ValueError("no JSON"), "UNDECODABLE")
    (letter,) = received(letters, "billing")
    assert letter.component_type == found


@pytest.mark.parametrize(("said", "found"), [("made-up", "order"), ("billing", "billing")])
def test_a_domain_that_only_its_header_names_counts_where_it_is_read(salvage, letters, said, found):
    salvage.take(bad_task(task="gone", **{"angzarr-domain": said}), ValueError("x"), "INVALID_TASK")
    (letter,) = received(letters, found)
    assert letter.message.headers["angzarr-domain"] == said
    assert received(letters, "made-up") == []


def test_two_malformed_tasks_of_one_body_are_two_letters(salvage, letters):
    for task_id in ("e1", "e2"):
        salvage.take(bad_task(id=task_id), ValueError("x"), "INVALID_TASK")
    one, other = received(letters, "crm")
    assert one.id != other.id


def test_it_never_takes_the_place_of_the_letter_of_the_event_whose_id_it_bears(salvage, letters):
    salvage.take(bad_task(), ValueError("x"), "INVALID_TASK")
    (letter,) = received(letters, "crm")
    event = Event(id="e1", type="t", data=None)
    own = replace(letter, id=letter_id("crm", "shop.sync", "e1", 0), event=event)
    assert letter.id != own.id
    assert entry_id_of(letter) != entry_id_of(own)


def test_headers_of_hostile_types_are_no_obstacle(salvage, letters):
    hostile = {"angzarr-domain": ["x"], "angzarr-queue": 7, "X-DLQ-Attempts": {}, "n": float("nan")}
    salvage.take(bad_task(**hostile), ValueError("x"), "INVALID_TASK")
    (letter,) = received(letters, "crm")
    assert letter.message.headers["angzarr-domain"] == ["x"]


@pytest.mark.parametrize(
    ("deaths", "redelivered", "reading"),
    [
        (0, False, ReadMode.WITH_OTHERS),
        (0, True, ReadMode.ALONE),
        (1, False, ReadMode.ALONE),
        (1, True, ReadMode.ALONE),
        (MOST_DEATHS - 1, True, ReadMode.ALONE),
        (MOST_DEATHS, False, ReadMode.NEVER),
        (MOST_DEATHS, True, ReadMode.NEVER),
        (1000, True, ReadMode.NEVER),
    ],
)
def test_it_is_read_alone_from_the_first_death_on_and_never_after_three(
    deaths, redelivered, reading
):
    assert reading_after(deaths, redelivered=redelivered) is reading


def test_the_letter_says_how_many_died_and_of_what():
    assert str(ReadersDied(3, 2)) == (
        "3 workers died, at least 2 of them while they read this message: it is kept as it came,"
        " and read by none"
    )
