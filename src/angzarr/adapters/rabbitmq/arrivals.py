"""Arrivals: what a worker has read from RabbitMQ and not yet handed to its consumers.

RabbitMQ sends messages one by one. A worker reads all that have come, and has them claimed
together. A loop sends the acknowledgements of one turn in one write.
"""

from __future__ import annotations

from typing import Any, Final

from amqp.exceptions import RecoverableConnectionError

from angzarr.runtime.message_line import LoopLine, MessageLine

#: Seconds that messages may wait to be claimed together while the pool has enough to do.
GATHERING: Final = 0.002


def line_of(connection: Any) -> MessageLine:
    """A line for the messages of *connection*, whose hearers are told."""
    return MessageLine(connection.on_fetched, connection.on_put_back)


def read_waiting(connection: Any) -> bool:
    """Read what has come, without waiting; True if there may be more. Raises lost connections."""
    if not connection.connected:
        msg = "Socket was disconnected"
        raise RecoverableConnectionError(msg)
    try:
        more = connection.frames.fill(connection.transport)
    except TimeoutError:
        connection.answer_check.look(connection)
        return False
    while connection.connected and connection.frames.handle(connection):
        pass
    return bool(more)


class Arrivals(LoopLine):
    """The line of one connection in one loop; used by the loop's thread."""

    def __init__(self, connection: Any, loop: Any) -> None:
        super().__init__(loop, line_of(connection), connection.on_turn, gathering=GATHERING)
        self._connection = connection
        #: Channels with something to acknowledge.
        self.acknowledging: set[Any] = set()

    def leave(self) -> None:
        """Be turned no more; RabbitMQ gives to others what is in line. Safe to call again."""
        super().leave()
        self.line.forget(self.line)

    def tick(self) -> None:
        """Take a turn before the loop waits, which it does not while there is more to read.

        A wait for an answer reads frame by frame, but TLS decrypts several at once.
        """
        super().tick()
        connection = self._connection
        if connection.connected and connection.frames.has_more(connection.transport):
            self.turn_soon()

    def read(self) -> None:
        """Read what has come, without waiting, and hand out; raises what a lost connection does."""
        self.fetch()
        self.hand_out()

    def fetch(self) -> None:
        """Put what has come in line, without waiting; raises what a lost connection does."""
        if self._connection.connected and read_waiting(self._connection):
            self.turn_soon()

    def acknowledge(self, *, idle: bool = False) -> None:  # noqa: ARG002 - it is one write
        """Send what the channels have to acknowledge."""
        while self.acknowledging:
            self.acknowledging.pop().send_acks()

    def reject(self, channel: Any, consumer: str) -> None:
        """Return what is in line for a cancelled *consumer*; its claims are freed first."""
        for one in reversed(self.put_back(channel, consumer)):
            channel.basic_reject(one.message.delivery_info["delivery_tag"], requeue=True)

    def forget(self, channel: Any) -> None:
        """Forget what came by a *channel* that is closed."""
        self.acknowledging.discard(channel)
        self.line.forget(one for one in self.line if one.channel is channel)
