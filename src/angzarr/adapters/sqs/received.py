"""What a worker's loop has received from SQS and not yet handed out, and what it is to delete.

One answer of SQS has up to ten messages. The loop shows all that have come to what claims them,
just before it hands out the first. It deletes acknowledged messages in batches.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from angzarr.adapters.sqs.deletions import MOST_A_CALL
from angzarr.runtime.backlog import has_backlog
from angzarr.runtime.nudge import Nudge

_log = logging.getLogger("angzarr.transport")

#: Seconds after which one turn hands out no more: results and acknowledgements must not wait. A
#: solo worker runs each task meanwhile.
LONGEST_TURN: Final = 0.0005
#: Seconds that an acknowledged message waits to be deleted with others: a call takes as long.
GATHERING: Final = 0.01


@dataclass(slots=True, eq=False)
class Received:
    """One message in line, for *callback*."""

    channel: Any
    queue: str
    callback: Callable[[Any], Any]
    #: As the channel holds it; one that came before is unpacked by *reread*, when it is handed out.
    message: Any
    reread: Callable[[], Any] | None
    shown: bool


class ReceivedMessages:
    """The line of one connection in one loop; used by the loop's thread.

    *on_fetched* takes the messages that have come since it was called last, *on_put_back* those
    that go back undelivered. *on_turn* ends claims in each turn of the loop, see `ClaimEnder.turn`.
    """

    def __init__(
        self,
        loop: Any,
        *,
        on_fetched: Callable[[list[Any]], object] | None = None,
        on_put_back: Callable[[list[Any]], object] | None = None,
        on_turn: Callable[..., bool] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._on_fetched = on_fetched
        self._on_put_back = on_put_back
        self._on_turn = on_turn
        self._monotonic = monotonic
        self._line: deque[Received] = deque()
        #: Channels with messages to delete, and since when the first of these waits.
        self._deleting: set[Any] = set()
        self._since = float("-inf")
        #: The prefetch limit of the last channel.
        self._limit = 0
        #: Channels with queues that are not polled for want of room.
        self._full: set[Any] = set()
        self._nudge = Nudge()
        number = self._nudge.fileno()
        loop.on_tick.add(self.tick)
        loop.add_reader(number, self._go_on)
        self._registered: int | None = number

    def leave(self) -> None:
        """Be turned no more. Safe to call again."""
        self._loop.on_tick.discard(self.tick)
        number, self._registered = self._registered, None
        if number is not None:
            self._loop.remove(number)
            self._nudge.close()

    def add(self, received: Received) -> None:
        """Put a message in line; the next turn of the loop hands it out."""
        self._limit = received.channel.qos.prefetch_count
        self._line.append(received)

    def delete_soon(self, channel: Any) -> None:
        """Let *channel* delete what it has to in one of the next turns."""
        if not self._deleting:
            self._since = self._monotonic()
            self._loop.call_later(GATHERING, self._nudge.now)
        self._deleting.add(channel)

    def wait_for_room(self, channel: Any) -> None:
        """Let *channel* poll again once it has room for messages."""
        self._full.add(channel)

    def tick(self) -> None:
        """Delete what is to be and end claims, before the loop waits; then come round again."""
        idle = not self._line and not has_backlog(self._limit)
        self._delete(idle=idle)
        for channel in [one for one in self._full if one.qos.can_consume()]:
            if not has_backlog(channel.qos.prefetch_count):
                self._full.discard(channel)
                channel.poll_again()
                self._nudge.now()
        if self._line:
            self._nudge.now()
        if self._on_turn is not None and self._on_turn(idle=idle):
            self._nudge.now()  # what follows is done before the loop waits once more

    def put_back(self, channel: Any, queue: str) -> None:
        """Return what is in line of a cancelled *queue*; its claims are freed first."""
        back = [one for one in self._line if one.channel is channel and one.queue == queue]
        for one in back:
            self._line.remove(one)
        self._tell(self._on_put_back, (one for one in back if one.shown))
        for one in reversed(back):
            channel.basic_reject(one.message.delivery_tag, requeue=True)

    def forget(self, channel: Any) -> None:
        """Forget a *channel* that is closed."""
        self._deleting.discard(channel)
        self._full.discard(channel)

    def _delete(self, *, idle: bool) -> None:
        due = idle or self._monotonic() - self._since >= GATHERING
        for channel in tuple(self._deleting):
            if due or len(channel.deletions) >= MOST_A_CALL:
                self._deleting.discard(channel)
                channel.deletions.send()

    def _go_on(self) -> None:
        self._nudge.answer()
        until = self._monotonic() + LONGEST_TURN
        while self._line:
            if not self._line[0].shown and self._line[0].reread is None:
                self._show()
            self._hand_over(self._line.popleft())
            if self._monotonic() > until:
                break

    def _hand_over(self, one: Received) -> None:
        try:
            one.channel.hand_over(one)
        except BaseException:  # a lost connection: the channel gives the message back
            self._tell(self._on_put_back, [one] if one.shown else [])
            raise

    def _show(self) -> None:
        """Let those who claim see what they have not seen; what came before rides nowhere."""
        fresh = [one for one in self._line if not one.shown and one.reread is None]
        for one in fresh:
            one.shown = True
        self._tell(self._on_fetched, fresh)

    def _tell(self, heard: Callable[[list[Any]], object] | None, what: Iterable[Received]) -> None:
        messages = [one.message for one in what]
        if heard is None or not messages:
            return
        try:
            heard(messages)
        except Exception:  # noqa: BLE001 - each message goes its way without it
            _log.exception("fetched_messages_not_told")
