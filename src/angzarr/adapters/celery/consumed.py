"""Consumed: which queue a message came out of. Neither its key nor a header tells it.

A key may lead to several queues or be known to no app, and a header is whatever a publisher wrote.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kombu import Consumer

#: The attribute in which a message has the name.
_NAME: Final = "angzarr_consumed_from"


def consumed_from(message: Any) -> str | None:
    """Return the name of the queue that *message* was consumed from; None: by another consumer."""
    name: str | None = getattr(message, _NAME, None)
    return name


class NamingConsumer(Consumer):
    """kombu's consumer of several queues, whose messages know from which of them they came."""

    def _basic_consume(
        self, queue: Any, consumer_tag: Any = None, no_ack: Any = None, nowait: bool = True  # noqa: FBT001, FBT002 - kombu's signature
    ) -> Any:  # fmt: skip
        tag = self._active_tags.get(queue.name)
        if tag is not None:
            return tag
        no_ack = queue.no_ack if no_ack is None else no_ack
        tag = self._add_tag(queue, consumer_tag)
        self._active_queue_no_ack[queue.name] = no_ack
        receive = partial(self._receive_from, queue.name)
        queue.consume(tag, receive, no_ack=no_ack, nowait=nowait)
        return tag

    def _receive_from(self, queue: str, message: Any) -> Any:
        # What it makes of the message is the same message, when kombu asks for it once more.
        message = self.channel.message_to_python(message)
        setattr(message, _NAME, queue)
        return self._receive_callback(message)
