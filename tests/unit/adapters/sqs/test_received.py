"""What waits in a worker's loop on SQS: to be handed out, to be deleted, or for room."""

from __future__ import annotations

from typing import Any

import pytest

from angzarr.adapters.sqs import received as module
from angzarr.adapters.sqs.deletions import MOST_A_CALL
from angzarr.adapters.sqs.received import GATHERING, ReceivedMessages
from angzarr.runtime import message_line
from angzarr.runtime.message_line import MessageInLine


class Loop:
    """A loop whose turns a test takes."""

    def __init__(self) -> None:
        self.on_tick: set[Any] = set()
        self.later: list[float] = []

    def add_reader(self, _number: int, read: Any) -> None:
        self.read = read

    def remove(self, _number: int) -> None:
        """Forget a descriptor."""

    def call_later(self, delay: float, _call: Any) -> None:
        self.later.append(delay)


class Quality:
    prefetch_count = 4
    room = True

    def can_consume(self) -> bool:
        return self.room


class Channel:
    """A channel that remembers what was asked of it."""

    def __init__(self) -> None:
        self.qos = Quality()
        self.deletions = self
        self.waiting = 0
        self.done: list[Any] = []

    def __len__(self) -> int:
        return self.waiting

    def send(self) -> None:
        self.done.append(f"delete {self.waiting}")
        self.waiting = 0

    def poll_again(self) -> None:
        self.done.append("poll")

    def take(self, message: Any) -> None:
        self.done.append(message)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop()
        self.channel = Channel()
        self.idle: list[bool] = []
        self.messages = ReceivedMessages(self.loop, on_turn=self.turn, monotonic=lambda: self.now)

    def turn(self, *, idle: bool) -> bool:
        self.idle.append(idle)
        return False

    def acknowledge(self, count: int = 1) -> None:
        for _ in range(count):
            self.channel.waiting += 1
            self.messages.delete_soon(self.channel)

    def receive(self, what: str) -> None:
        self.messages.add(MessageInLine(self.channel, "q", self.channel.take, what), 4)


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.messages.leave()


@pytest.fixture
def has_backlog(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Empty: the pool has little to do."""
    busy: list[int] = []
    for one in (module, message_line):
        monkeypatch.setattr(one, "has_backlog", lambda _limit: bool(busy))
    return busy


def test_an_idle_worker_deletes_at_once(world, has_backlog):
    world.acknowledge()
    world.messages.tick()
    assert world.channel.done == ["delete 1"]
    assert world.idle == [True]


def test_a_busy_worker_deletes_what_came_within_some_milliseconds_together(world, has_backlog):
    has_backlog.append(1)
    world.acknowledge(2)
    world.messages.tick()
    assert world.channel.done == []
    assert world.loop.later == [GATHERING], "it comes round by itself"
    world.acknowledge()
    world.now += GATHERING
    world.messages.tick()
    assert world.channel.done == ["delete 3"]
    world.acknowledge()
    world.messages.tick()
    assert world.channel.done == ["delete 3"], "the next ones wait anew"


def test_a_full_call_waits_for_no_more(world, has_backlog):
    has_backlog.append(1)
    world.acknowledge(MOST_A_CALL)
    world.messages.tick()
    assert world.channel.done == [f"delete {MOST_A_CALL}"]


def test_a_turn_that_runs_a_long_task_hands_out_no_more(world, has_backlog):
    def run(message: Any) -> None:
        world.now += 1.0
        world.channel.done.append(message)

    world.channel.take = run
    world.receive("first")
    world.receive("second")
    world.loop.read()
    assert world.channel.done == ["first"]
    world.messages.tick()
    assert world.idle == [False], "what ends meanwhile may wait for company"
    world.loop.read()
    assert world.channel.done == ["first", "second"]


def test_a_queue_is_polled_once_there_is_room_and_half_of_what_was_fetched_has_begun(
    world, has_backlog
):
    world.messages.wait_for_room(world.channel)
    world.channel.qos.room = False
    world.messages.tick()
    world.channel.qos.room = True
    has_backlog.append(1)
    world.messages.tick()
    assert world.channel.done == []
    has_backlog.clear()
    world.messages.tick()
    world.messages.tick()
    assert world.channel.done == ["poll"]


def test_a_channel_that_is_closed_is_asked_for_nothing(world, has_backlog):
    world.acknowledge()
    world.messages.wait_for_room(world.channel)
    world.messages.forget(world.channel)
    world.messages.tick()
    assert world.channel.done == []
