"""What a lane misses is sent again as its first message was, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from tests.contracts.event_store import fill
from tests.hand_clock import HandClock

from angzarr.adapters.celery.publish import outbox as lane_healing
from angzarr.adapters.celery.publish.outbox import GapResender
from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryEventStore
from angzarr.aggregates.book import Address
from angzarr.delivery.delivery import read
from angzarr.delivery.schedule import row_of
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Event, task_id_for
from angzarr.ordering.lane import Gap, Lane, Waiting, Why

AT = datetime(2026, 3, 1, tzinfo=UTC)
HANDLER = "projection.totals"


def gap(address, missing, first_waiting, first=0):
    lane = Lane(HANDLER, address, first)
    waiting = Waiting(
        lane=lane, sequence=first_waiting, why=Why.EARLY, since=AT, event_id="e",
        event_type="Counted", text="{}",
    )  # fmt: skip
    return Gap(lane, missing, waiting, 1)


class World:
    """Books with an aggregate of seven events between others, and a publisher."""

    def __init__(self):
        self.clock = HandClock()
        self.books = MemoryEventBooks()
        self.published = []
        self.refuses_from = 10**6
        self.address = Address("order", "r2")
        others = (
            Address("order", "r1"), Address("order", "r3"), Address("order", "r2", "draft"),
            Address("orders", "r2"),
        )  # fmt: skip
        for address in (*others, self.address):
            fill(self.books, address, *(self.event(n) for n in range(7)))

    def event(self, n):
        return Event(
            id=str(uuid4()), type="Counted", data={"n": n}, correlation_id="c",
            occurred_at=AT, config_pins={"rates": "7"},
        )  # fmt: skip

    def publish(self, message):
        if len(self.published) >= self.refuses_from:
            raise BrokerUnavailable("the broker is away")
        self.published.append(message)

    def heal(self, missing, most=99, *, above_all=False):
        store = MemoryEventStore(self.books)
        healing = GapResender(store, self, lambda handler: f"queue of {handler}", self.clock)
        return healing.heal(missing, most, above_all=above_all)

    def sent(self):
        return [
            (one.headers["angzarr-root"], one.headers["angzarr-sequence"]) for one in self.published
        ]


@pytest.fixture
def world():
    return World()


def test_what_is_missing_before_the_first_that_waits_is_sent_in_order(world):
    assert world.heal(gap(world.address, 2, 5)) == 3
    assert world.sent() == [("r2", 2), ("r2", 3), ("r2", 4)]


@pytest.mark.parametrize("above_all", [False, True], ids=["as it was", "above all"])
def test_it_is_the_message_that_a_publisher_would_send(world, above_all):
    world.heal(gap(world.address, 2, 3), above_all=above_all)
    (message,) = world.published
    found = read(message, args=json.loads(message.body)[0], kwargs={}, token="t", owner="w")
    kept = MemoryEventStore(world.books).scan(["order"], None, 99)
    (event,) = (one for one in kept if (one.root, one.edition, one.sequence) == ("r2", None, 2))
    assert found.event == event
    hop = int(world.clock.now().timestamp()) // 60 if above_all else 0
    assert (found.handler, found.position, found.attempt) == (HANDLER, (0, hop), 1)
    assert message.headers["id"] == task_id_for(event.id, HANDLER), "it runs once"
    assert message.queue == message.routing_key == f"queue of {HANDLER}"


@pytest.mark.parametrize(
    ("address", "missing", "first_waiting"),
    [
        (Address("order", "r2"), 7, 9), (Address("order", "r9"), 0, 3),
        (Address("order", "r2", "final"), 0, 3), (Address("bill", "r2"), 0, 3),
    ],
    ids=["behind its book", "no book", "another edition", "another domain"],
)  # fmt: skip
def test_what_the_books_have_not_is_not_made_up(world, address, missing, first_waiting):
    assert world.heal(gap(address, missing, first_waiting)) == 0
    assert world.published == []


def test_an_edition_has_events_of_its_own(world):
    address = Address("order", "r2", "draft")
    assert world.heal(gap(address, 0, 2)) == 2
    assert [one.headers["angzarr-edition"] for one in world.published] == ["draft"] * 2


def test_a_book_that_ends_within_the_gap_gives_what_it_has(world):
    assert world.heal(gap(world.address, 5, 100)) == 2
    assert world.sent() == [("r2", 5), ("r2", 6)]


def test_a_wide_gap_is_mended_part_by_part(world, monkeypatch):
    monkeypatch.setattr(lane_healing, "MOST_RESENT", 3)
    assert world.heal(gap(world.address, 0, 7)) == 3
    assert world.heal(gap(world.address, 3, 7)) == 3
    assert [n for _, n in world.sent()] == list(range(6))


def test_no_more_is_sent_than_may_be(world):
    assert world.heal(gap(world.address, 0, 7), 2) == 2
    assert world.sent() == [("r2", 0), ("r2", 1)]


def overdue_copy(missing, text):
    overdue = dataclasses.replace(
        missing.first_waiting, sequence=missing.missing, why=Why.RETRYING, text=text, due_at=AT
    )
    return missing._replace(overdue=overdue)


def test_an_overdue_copy_is_sent_as_it_is_and_at_last_before_a_later_one_that_is_lost(world):
    world.heal(gap(world.address, 2, 3))
    headers = {"id": "x", "task": HANDLER, names.HOP: 7, names.ATTEMPT: 4}
    copy = dataclasses.replace(world.published.pop(), headers=headers)
    missing = overdue_copy(gap(world.address, 2, 5), row_of(copy).text)
    assert world.heal(missing) == world.heal(missing, above_all=True) == 1
    minutes = int(world.clock.now().timestamp()) // 60
    latest = dataclasses.replace(copy, headers={**headers, names.HOP: minutes})
    assert world.published == [copy, latest], "with its attempts"


def test_a_copy_that_nobody_can_read_is_looked_up(world, caplog):
    assert world.heal(overdue_copy(gap(world.address, 2, 3), "{")) == 1
    assert world.sent() == [("r2", 2)]
    assert "copy_unreadable: event e" in caplog.text


def test_an_overdue_event_without_its_copy_is_looked_up(world):
    assert world.heal(overdue_copy(gap(world.address, 2, 3), None)) == 1
    assert world.sent() == [("r2", 2)]


def test_without_books_nothing_is_sent(world):
    assert GapResender(None, world, str, world.clock).heal(gap(world.address, 0, 3), 9) == 0


def test_a_broker_that_goes_away_is_told(world):
    world.refuses_from = 1
    with pytest.raises(BrokerUnavailable):
        world.heal(gap(world.address, 0, 3))
    world.refuses_from = 10**6
    assert world.heal(gap(world.address, 0, 3)) == 3
