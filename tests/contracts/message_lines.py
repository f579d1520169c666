"""What the line of messages of every broker must do in a loop. Brokers subclass this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from angzarr.runtime import message_line
from polling import wait_until


class LoopOfLine:
    """Turns one connection in a loop, as a worker does, and remembers what it was shown.

    Subclasses have `connection`, `channel`, `consumer` and `line`, once they are made.
    """

    line: Any
    consumer: Any

    def __init__(self) -> None:
        self.shown: list[list[Any]] = []
        self.put_back: list[Any] = []
        self.taken: list[Any] = []
        self.reread: list[Any] = []
        self.take: Callable[[Any], Any] = self.taken.append

    def begin(self, hub: Any) -> None:
        """Turn *hub*, whose loop raises what is a lost connection."""
        self.hub = hub
        hub.call_repeatedly(0.05, list)  # no turn waits for longer
        hub.propagate_errors = (OSError,)
        self._turns = hub.create_loop()

    def heard(self) -> dict[str, Any]:
        """The options of a transport by which it tells what it does."""
        return {"on_fetched": self.see, "on_put_back": self.put_back.extend}

    def see(self, messages: list[Any]) -> None:
        self.shown.append([message.payload for message in messages])

    def read_again(self, _queue: str, _identity: bytes, make: Any, _packed: Any) -> Any:
        message = make()
        self.reread.append(message.payload)
        return message

    def on_message(self, message: Any) -> None:
        self.take(message)

    def turn(self) -> None:
        next(self._turns)

    def messages(self, count: int) -> list[Any]:
        """The payloads of all that was handed out, once it is so many."""
        wait_until(lambda: (self.turn(), len(self.taken) >= count)[1])
        return sorted(message.payload for message in self.taken)

    def fill_line(self, count: int) -> None:
        """Wait until *count* messages are in line, and hand none out."""
        raise NotImplementedError

    def lose_connection(self) -> None:
        """Close the connection as one that is lost."""
        raise NotImplementedError


def fail(_message: Any) -> None:
    msg = "lost"
    raise ConnectionResetError(msg)


class MessageLineContract:
    """Subclasses give `send` (so many numbers) and `ready` (messages in the queue).

    Their modules give `open_loop`, which makes a `LoopOfLine` with a prefetch limit.
    """

    @pytest.fixture
    def send(self) -> Callable[[int], None]:
        raise NotImplementedError

    @pytest.fixture
    def ready(self) -> Callable[[], int]:
        raise NotImplementedError

    def test_what_has_come_is_shown_together_before_the_first_is_handed_out(self, send, open_loop):
        send(5)
        loop = open_loop()
        loop.take = lambda message: (
            loop.shown or pytest.fail("unseen"),
            loop.taken.append(message),
        )
        loop.consumer.consume()
        loop.fill_line(2)
        assert loop.messages(5) == list(range(5))
        assert sorted(n for together in loop.shown for n in together) == list(range(5))
        assert max(map(len, loop.shown)) > 1

    def test_what_came_before_is_read_with_care_and_shown_to_nobody(self, send, open_loop):
        send(2)
        loop = open_loop()
        loop.consumer.consume()
        loop.messages(2)
        again = loop.taken[0].payload
        loop.taken[0].reject(requeue=True)
        assert loop.messages(3) == sorted([0, 1, again])
        assert loop.reread == [again]
        assert sorted(n for together in loop.shown for n in together) == [0, 1]

    def test_what_is_in_line_when_its_consumer_is_cancelled_goes_back(self, send, open_loop, ready):
        send(4)
        loop = open_loop(prefetch=4)
        loop.consumer.consume()
        loop.fill_line(4)
        loop.line.line._show()
        loop.consumer.cancel()
        assert sorted(message.payload for message in loop.put_back) == list(range(4))
        assert not loop.taken
        wait_until(lambda: ready() == 4)

    def test_what_is_in_line_when_the_connection_is_lost_has_its_claims_freed(
        self, send, open_loop
    ):
        send(3)
        loop = open_loop(prefetch=3)
        loop.consumer.consume()
        loop.fill_line(3)
        loop.line.line._show()
        loop.lose_connection()
        assert sorted(message.payload for message in loop.put_back) == list(range(3))
        assert not loop.taken

    def test_a_connection_that_is_lost_while_a_message_is_handed_out_frees_its_claim(
        self, send, open_loop
    ):
        send(1)
        loop = open_loop()
        loop.take = fail
        loop.consumer.consume()
        with pytest.raises(ConnectionResetError):
            loop.messages(1)
        assert [message.payload for message in loop.put_back] == [0]

    def test_who_is_shown_messages_and_fails_stops_none(self, send, open_loop, monkeypatch, caplog):
        monkeypatch.setattr(message_line, "LONGEST_TURN", -1.0)  # one message a turn
        send(4)
        loop = open_loop()
        loop.line.line._on_fetched = lambda _messages: 1 / 0
        loop.consumer.consume()
        assert loop.messages(4) == list(range(4))
        assert "fetched_messages_not_told" in caplog.text
