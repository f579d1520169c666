"""kombu's RabbitMQ transport, but a mandatory message that no queue takes is an error.

RabbitMQ confirms such a message as well, after it has returned it. py-amqp raises the return and
leaves the confirm unread, which the next publish would take for its own. And what it says of a
message is read even where py-amqp cannot.
"""

from __future__ import annotations

from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import pyamqp

from angzarr.adapters.rabbitmq.frames import frame_handler


class Channel(pyamqp.Channel):
    """A channel whose confirmed publishes know what came back."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._returned = False
        self.events["basic_return"].add(self._on_return)

    def basic_publish_confirm(
        self, msg: Any, exchange: str = "", routing_key: str = "", **options: Any
    ) -> Any:
        """Publish and wait for the confirm; raises RecoverableConnectionError if it came back."""
        self._returned = False
        answer = super().basic_publish_confirm(msg, exchange, routing_key, **options)
        if self._returned:
            # The queue was deleted: kombu must not think that it has declared it.
            self.connection.client.declared_entities.clear()
            msg = f"no queue takes {routing_key!r} at the exchange {str(exchange)!r}"
            raise RecoverableConnectionError(msg)  # kombu connects anew and declares the queue
        return answer

    def _on_return(self, *_: Any) -> None:
        self._returned = True


class Connection(pyamqp.Connection):
    """A connection with such channels."""

    Channel = Channel

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"frame_handler": frame_handler, **options})


class Transport(pyamqp.Transport):
    """For ``amqp://`` and ``pyamqp://``."""

    Connection = Connection


class TlsTransport(pyamqp.SSLTransport):
    """For ``amqps://``."""

    Connection = Connection
