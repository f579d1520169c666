"""Consumed: which queue a message came out of. Neither its key nor a header tells it.

A key may lead to several queues or be known to no app, and a header is whatever a publisher wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from kombu import Consumer

#: The attribute in which a message has the name.
_NAME: Final = "angzarr_consumed_from"


def consumed_from(message: Any) -> str | None:
    """Return the name of the queue that *message* was consumed from; None: by another consumer."""
    name: str | None = getattr(message, _NAME, None)
    return name


#: Reads what is delivered once more: its queue, what tells it from others, what makes it a message,
#: and what makes it one with its body as it came.
Reread: TypeAlias = Callable[[str, bytes, Callable[[], Any], Callable[[], Any]], Any]


class Receiver:
    """What a channel calls with each message of one queue; see `NamingConsumer`."""

    def __init__(self, queue: str, receive: Callable[[str, Any], Any], reread: Reread) -> None:
        self._receive = partial(receive, queue)
        #: What makes a message of one that is delivered once more, for transports that can tell.
        self.redelivered = partial(reread, queue)

    def __call__(self, message: Any) -> Any:
        """Hand *message* to the consumer."""
        return self._receive(message)


class NamingConsumer(Consumer):
    """kombu's consumer of several queues, whose messages know from which of them they came.

    *reread* makes messages of what a broker delivers once more.
    """

    def __init__(self, *args: Any, reread: Reread, **options: Any) -> None:
        self._reread = reread
        super().__init__(*args, **options)

    def _basic_consume(
        self, queue: Any, consumer_tag: Any = None, no_ack: Any = None, nowait: bool = True  # noqa: FBT001, FBT002 - kombu's signature
    ) -> Any:  # fmt: skip
        tag = self._active_tags.get(queue.name)
        if tag is not None:
            return tag
        no_ack = queue.no_ack if no_ack is None else no_ack
        tag = self._add_tag(queue, consumer_tag)
        self._active_queue_no_ack[queue.name] = no_ack
        receive = Receiver(queue.name, self._receive_from, self._reread)
        queue.consume(tag, receive, no_ack=no_ack, nowait=nowait)
        return tag

    def _receive_from(self, queue: str, message: Any) -> Any:
        # What it makes of the message is the same message, when kombu asks for it once more.
        message = self.channel.message_to_python(message)
        setattr(message, _NAME, queue)
        return self._receive_callback(message)
