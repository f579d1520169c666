"""kombu's RabbitMQ transport, which reads all that has come at once.

It also reads messages that py-amqp cannot, and a reader notices within half a minute that RabbitMQ
does not answer on its connection.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from kombu.transport import pyamqp

from angzarr.adapters.rabbitmq.arrivals import Arrivals, line_of, read_waiting
from angzarr.adapters.rabbitmq.channel import RabbitMQChannel, patience_of
from angzarr.adapters.rabbitmq.frame_reader import FrameReader
from angzarr.adapters.rabbitmq.py_amqp import AnswerCheck, WriteBuffer, frame_handler
from angzarr.runtime.message_line import MessageLine

#: Seconds between two looks whether RabbitMQ is heard, where a loop reads only what arrives.
HEARD_EVERY: Final = 1.0


class RabbitMQConnection(pyamqp.Connection):
    """A connection with such channels, which knows whether RabbitMQ takes anything from it."""

    Channel = RabbitMQChannel

    #: What its loop has read; None: no loop turns it.
    arrivals: Arrivals | None = None
    #: What a wait without a loop has read (gevent); None: none is under way.
    drained: MessageLine | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        self.on_fetched = options.pop("on_fetched", None)
        self.on_put_back = options.pop("on_put_back", None)
        self.on_turn = options.pop("on_turn", None)
        self.write_buffer = WriteBuffer()
        ours = {"frame_handler": frame_handler, "frame_writer": self.write_buffer.frame_writer}
        super().__init__(*args, **{**ours, **options})
        self.blocked = False
        self.answer_check = AnswerCheck()
        #: What was read and not yet handled.
        self.frames = FrameReader()

    def drain_events(self, timeout: float | None = None) -> Any:
        """Handle one event; raises TimeoutError if none comes.

        Raises RecoverableConnectionError once RabbitMQ does not answer any more.
        """
        try:
            return super().drain_events(timeout)
        except TimeoutError:
            self.answer_check.look(self)
            raise

    def blocking_read(self, timeout: float | None = None) -> Any:
        """Handle one frame, or what was read with others; raises what py-amqp does."""
        return self.frames.handle(self) or super().blocking_read(timeout)

    def collect(self) -> None:
        """Forget the connection, and what was read from it."""
        self.frames = FrameReader()
        super().collect()

    def close(self, *args: Any, **options: Any) -> None:
        """Acknowledge what is to be, and take leave of RabbitMQ, if it listens."""
        try:
            if not self.blocked:
                if self.arrivals is not None and self.connected:
                    self.arrivals.acknowledge()
                super().close(*args, **options)
        finally:
            self.collect()

    def wait(
        self, method: Any, callback: Any = None, timeout: float | None = None, **options: Any
    ) -> Any:
        """Wait for an answer; raises TimeoutError."""
        return super().wait(method, callback, timeout or patience_of(self, self), **options)

    def _on_blocked(self) -> Any:
        self.blocked = True
        return super()._on_blocked()

    def _on_unblocked(self) -> Any:
        self.blocked = False
        return super()._on_unblocked()


class RabbitMQTransport(pyamqp.Transport):
    """For ``amqp://`` and ``pyamqp://``."""

    Connection = RabbitMQConnection

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._looks: list[Any] = []
        self._arrivals: Arrivals | None = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let *loop* read what arrives, and look whether anything still does."""
        super().register_with_event_loop(connection, loop)
        self._stop_looking()
        self._looks.append(loop.call_repeatedly(HEARD_EVERY, _listen, connection))
        connection.arrivals = self._arrivals = Arrivals(connection, loop)

    def on_readable(self, connection: Any, loop: Any) -> None:  # noqa: ARG002 - kombu's
        """Read what has come, and hand it out."""
        connection.arrivals.read()

    def drain_events(self, connection: Any, **options: Any) -> Any:
        """Handle what comes; without a loop (gevent) all messages that have come with it."""
        if connection.arrivals is not None or connection.on_fetched is None:
            return super().drain_events(connection, **options)
        connection.drained = line = line_of(connection)
        try:
            super().drain_events(connection, **options)
            if line:
                read_waiting(connection)
        finally:
            connection.drained = None
        line.hand_out_all()
        return None

    def close_connection(self, connection: Any) -> None:
        """Look no more, and close."""
        self._stop_looking()
        super().close_connection(connection)

    def _stop_looking(self) -> None:
        while self._looks:
            self._looks.pop().cancel()
        if self._arrivals is not None:
            self._arrivals.leave()


class RabbitMQTlsTransport(RabbitMQTransport, pyamqp.SSLTransport):
    """For ``amqps://``."""


def _listen(connection: Any) -> None:
    """Read what may have come; else look for how long nothing has."""
    if connection.connected:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0)
