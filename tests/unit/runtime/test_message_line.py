"""When a loop hands out what is in line, and what it has claimed together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from angzarr.runtime import message_line as module
from angzarr.runtime.message_line import LONGEST_TURN, LoopLine, MessageInLine, MessageLine

GATHERING = 0.25


class Loop:
    """A loop whose turns a test takes."""

    def __init__(self) -> None:
        self.on_tick: set[Any] = set()
        self.later: list[float] = []

    def add_reader(self, _number: int, read: Any) -> None:
        self.come_round = read

    def remove(self, _number: int) -> None:
        """Forget a descriptor."""

    def call_later(self, delay: float, _call: Any) -> None:
        self.later.append(delay)


class Line(LoopLine):
    def acknowledge(self, *, idle: bool) -> None:
        """Nothing is acknowledged here."""


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.took = 0.0
        self.loop = Loop()
        self.shown: list[list[Any]] = []
        self.back: list[Any] = []
        self.got: list[Any] = []
        line = MessageLine(self.shown.append, self.back.extend)
        self.line = Line(
            self.loop, line, None, gathering=GATHERING, monotonic=lambda: self.now
        )  # fmt: skip

    def take(self, message: Any) -> None:
        self.now += self.took
        self.got.append(message)

    def receive(self, *messages: Any, source: str = "a", reread: Any = None) -> None:
        for message in messages:
            one = MessageInLine(self, source, self.take, message, reread)
            self.line.add(one, 8)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.line.leave()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Not empty: the pool has enough to do."""
    waiting = [1]
    monkeypatch.setattr(module, "has_backlog", lambda _limit: bool(waiting))
    return waiting


def test_an_idle_pool_gets_what_has_come_at_once(world, busy):
    busy.clear()
    world.receive(1, 2)
    world.loop.come_round()
    assert world.got == [1, 2]
    assert world.shown == [[1, 2]]


def test_while_the_pool_is_busy_messages_wait_to_be_claimed_with_others(world, busy):
    world.receive(1)
    world.loop.come_round()
    assert not world.got
    assert world.loop.later == [GATHERING], "it comes round by itself"
    world.now += GATHERING
    world.receive(2)
    world.loop.come_round()
    assert world.got == [1, 2]
    assert world.shown == [[1, 2]]


def test_half_of_the_prefetch_limit_is_company_enough(world, busy):
    world.receive(1, 2, 3)
    world.loop.come_round()
    assert not world.got
    world.receive(4)
    world.loop.come_round()
    assert world.got == [1, 2, 3, 4]


def test_what_came_before_waits_for_nobody_and_is_made_when_it_is_handed_out(world, busy):
    world.receive("raw", reread=lambda: "read")
    world.loop.come_round()
    assert world.got == ["read"]
    assert not world.shown


def test_a_turn_ends_once_it_took_long_and_the_rest_is_claimed_already(world, busy):
    busy.clear()
    world.took = LONGEST_TURN * 2
    world.receive(1, 2)
    world.loop.come_round()
    assert world.got == [1]
    world.receive(3)
    world.loop.come_round()
    world.loop.come_round()
    assert world.got == [1, 2, 3]
    assert world.shown == [[1, 2], [3]]


def test_only_what_was_shown_has_claims_to_free(world, busy):
    world.receive(1, 2)
    world.line.line._show()
    world.receive(3, source="b")
    world.receive("raw", source="b", reread=lambda: "read")
    assert [one.message for one in world.line.put_back(world, "b")] == [3, "raw"]
    assert not world.back
    assert [one.message for one in world.line.put_back(world, "a")] == [1, 2]
    assert world.back == [1, 2]


def test_what_a_lost_connection_leaves_in_a_line_without_a_loop_is_freed():
    back: list[Any] = []

    def fail(_message: Any) -> None:
        raise ConnectionResetError

    line = MessageLine(lambda _messages: None, back.extend)
    for message in (1, 2):
        line.add(MessageInLine(None, "a", fail, message))
    with pytest.raises(ConnectionResetError):
        line.hand_out_all()
    assert back == [1, 2]
    assert not line
