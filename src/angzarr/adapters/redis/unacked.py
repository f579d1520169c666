"""Unacked: which delivered messages a channel still counts as its own, in kombu's terms (QoS)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kombu.transport import redis as stock
from kombu.transport.virtual.base import QoS
from redis.exceptions import ResponseError

from angzarr.adapters.redis.session import AWAY

#: The attribute of a message that holds the `Ending` of a claim that ends with it.
ENDING = "angzarr_ending"

#: The attribute of a message that was fetched: a broadcast was not, and no session holds it.
FETCHED = "angzarr_fetched"

_log = logging.getLogger("angzarr.transport")


class Unacked(stock.QoS):
    """Counts against the prefetch limit here; the messages themselves lie in Redis.

    Of the stock class `restore_visible` is kept: it gives back what stock workers of the same
    fleet left behind.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count *message*, which the fetch has written down already."""
        QoS.append(self, message, delivery_tag)

    def delivered(self) -> list[str]:
        """The tags of what is delivered and neither acknowledged nor rejected."""
        return [tag for tag in self._delivered if tag not in self._dirty]

    def ack(self, delivery_tag: str) -> None:
        """Let go of a message: with the next step, or at once where no loop takes steps."""
        message = self._delivered.get(delivery_tag)
        QoS.ack(self, delivery_tag)
        if is_fetched(message):
            self.channel.let_go(delivery_tag, getattr(message, ENDING, None))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Let go of a message, or put it at the end of the list it came from."""
        message = self._delivered.get(delivery_tag)
        QoS.ack(self, delivery_tag)
        if not is_fetched(message):
            return
        if requeue:
            self.channel.give_back([delivery_tag], last=True)
        else:
            self.channel.let_go(delivery_tag)

    def give_back(self, delivery_tags: Sequence[str]) -> None:
        """Put messages back to the front of their lists, in their old order, in one go."""
        fetched = [tag for tag in delivery_tags if is_fetched(self._delivered.get(tag))]
        for tag in delivery_tags:
            QoS.ack(self, tag)
        self.channel.give_back(fetched)

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Give back what stock workers left, by the stock rule; not on a full server."""
        try:
            super().restore_visible(*args, **kwargs)
        except ResponseError as error:
            _log.warning("stock_messages_not_given_back: %s", error)

    def restore_unacked(self, client: Any = None) -> list[Any]:  # noqa: ARG002 - kombu's signature
        """Give back all that was delivered and not acknowledged."""
        self._flush()
        self.channel.give_back(list(self._delivered))
        self._delivered.clear()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002 - kombu's signature
        """Give everything back at the end; kombu would write it to a file if Redis is away.

        Here it stays in Redis, and comes back from there.
        """
        self._on_collect.cancel()
        self._flush()
        if self._delivered and self.restore_at_shutdown and self.channel.do_restore:
            _log.info("giving back %d messages that were not acknowledged", len(self._delivered))
        self._delivered.clear()
        self._delivered.restored = True
        try:
            self.channel.end_session()
        except AWAY as error:
            _log.warning("session_not_ended: %s", error)


def is_fetched(message: Any) -> bool:
    """True if *message* lies in Redis until it is let go; one that is unknown may."""
    return message is None or getattr(message, FETCHED, False)
