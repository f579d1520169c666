"""Publisher: the port that hands a raw message to the broker. Confirmed, or an error."""

from __future__ import annotations

from typing import Protocol

from angzarr.events.message import Message


class Publisher(Protocol):
    """Sends raw messages to the queue they name."""

    def publish(self, message: Message, /) -> None:
        """Return once the broker confirmed *message*.

        Body and headers go out as they are. Raises BrokerUnavailable when it was not confirmed;
        it may then have been sent all the same, which the claim makes harmless.
        """
