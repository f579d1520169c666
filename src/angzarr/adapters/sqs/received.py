"""What a worker's loop has received from SQS and not yet handed out, and what it is to delete.

One answer of SQS has up to ten messages. The loop has them claimed together, and deletes
acknowledged messages in batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from angzarr.adapters.sqs.deletions import MOST_A_CALL
from angzarr.runtime.backlog import has_backlog
from angzarr.runtime.message_line import Hears, LoopLine, MessageLine

#: Seconds that an acknowledged message waits to be deleted with others: a call takes as long.
GATHERING: Final = 0.01


class ReceivedMessages(LoopLine):
    """The line of one connection in one loop; used by the loop's thread.

    *on_fetched* takes the messages that have come since it was called last, *on_put_back* those
    that go back undelivered. *on_turn* ends claims in each turn of the loop, see `ClaimEnder.turn`.
    """

    def __init__(
        self,
        loop: Any,
        *,
        on_fetched: Hears | None = None,
        on_put_back: Hears | None = None,
        on_turn: Callable[..., bool] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(loop, MessageLine(on_fetched, on_put_back), on_turn, monotonic=monotonic)
        #: Channels with messages to delete, and since when the first of these waits.
        self._deleting: set[Any] = set()
        self._since = float("-inf")
        #: Channels with queues that are not polled for want of room.
        self._full: set[Any] = set()

    def delete_soon(self, channel: Any) -> None:
        """Let *channel* delete what it has to in one of the next turns."""
        if not self._deleting:
            self._since = self._monotonic()
            self._loop.call_later(GATHERING, self.turn_soon)
        self._deleting.add(channel)

    def wait_for_room(self, channel: Any) -> None:
        """Let *channel* poll again once it has room for messages."""
        self._full.add(channel)

    def acknowledge(self, *, idle: bool) -> None:
        """Delete what is to be, and poll where there is room again."""
        due = idle or self._monotonic() - self._since >= GATHERING
        for channel in tuple(self._deleting):
            if due or len(channel.deletions) >= MOST_A_CALL:
                self._deleting.discard(channel)
                channel.deletions.send()
        for channel in [one for one in self._full if one.qos.can_consume()]:
            if not has_backlog(channel.qos.prefetch_count):
                self._full.discard(channel)
                channel.poll_again()
                self.turn_soon()

    def reject(self, channel: Any, queue: str) -> None:
        """Return what is in line of a cancelled *queue*; its claims are freed first."""
        for one in reversed(self.put_back(channel, queue)):
            channel.basic_reject(one.message.delivery_tag, requeue=True)

    def forget(self, channel: Any) -> None:
        """Forget a *channel* that is to be closed; what came by it is freed before it goes back."""
        self._deleting.discard(channel)
        self._full.discard(channel)
        self.line.forget(one for one in self.line if one.channel is channel)
