"""Message lines: what a worker has received from a broker and not yet handed out.

The messages that wait together are shown together to who claims them, just before the first of
them is handed out. Those that go back undelivered are shown again, so that their claims are freed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from angzarr.runtime.backlog import has_backlog
from angzarr.runtime.nudge import Nudge

_log = logging.getLogger("angzarr.transport")

#: Seconds after which one turn hands out no more: results and acknowledgements must not wait. A
#: solo worker runs each task meanwhile. Each turn has costs of its own, so it is worth some tasks.
LONGEST_TURN: Final = 0.005

#: Takes messages.
Hears = Callable[[list[Any]], object]


@dataclass(slots=True, eq=False)
class MessageInLine:
    """One message in line, for *callback*."""

    channel: Any
    #: The consumer or queue of its channel that it came by.
    source: str
    callback: Callable[[Any], Any]
    message: Any
    #: Makes the message of one that came before, when it is handed out; None: it is new.
    reread: Callable[[], Any] | None = None
    shown: bool = False


class MessageLine:
    """Messages in their order; used by one thread.

    *on_fetched* takes the new ones that have come since it was called last, *on_put_back* those of
    them that go back undelivered. What they raise is logged and stops no message.
    """

    def __init__(self, on_fetched: Hears | None, on_put_back: Hears | None) -> None:
        self._on_fetched = on_fetched
        self._on_put_back = on_put_back
        self._line: deque[MessageInLine] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def __iter__(self) -> Iterator[MessageInLine]:
        """Those that wait."""
        return iter(self._line)

    @property
    def first(self) -> MessageInLine:
        """The next one to be handed out."""
        return self._line[0]

    def add(self, one: MessageInLine, _limit: int = 0) -> None:
        """Put a message in line."""
        self._line.append(one)

    def hand_out_first(self) -> None:
        """Give the first one to its callback; raises what a lost connection does."""
        one = self._line[0]
        if one.reread is None and not one.shown:
            self._show()
        self._line.popleft()
        try:
            one.callback(one.message if one.reread is None else one.reread())
        except BaseException:  # a lost connection: the broker gives the message to others
            self._put_back([one])
            raise

    def hand_out_all(self) -> None:
        """Give each to its callback; what a lost connection leaves has its claims freed."""
        try:
            while self._line:
                self.hand_out_first()
        finally:
            self.forget(self._line)

    def forget(self, those: Iterable[MessageInLine]) -> list[MessageInLine]:
        """Hand out none of *those*, which are returned; their claims are freed."""
        gone = list(those)
        for one in gone:
            self._line.remove(one)
        self._put_back(gone)
        return gone

    def _show(self) -> None:
        """Let those who claim see what they have not seen; what came before rides nowhere."""
        fresh = [one for one in self._line if not one.shown and one.reread is None]
        for one in fresh:
            one.shown = True
        self._tell(self._on_fetched, fresh)

    def _put_back(self, gone: list[MessageInLine]) -> None:
        self._tell(self._on_put_back, [one for one in gone if one.shown])

    def _tell(self, hear: Hears | None, those: list[MessageInLine]) -> None:
        if hear is None or not those:
            return
        try:
            hear([one.message for one in those])
        except Exception:  # noqa: BLE001 - each message goes its way without it
            _log.exception("fetched_messages_not_told")


class LoopLine:
    """The line of one connection that a worker's loop turns; used by the loop's thread.

    *on_turn* ends claims in each turn of the loop, see `ClaimEnder.turn`. While the pool has enough
    to do, new messages wait *gathering* seconds for others to be claimed with.
    """

    def __init__(
        self,
        loop: Any,
        line: MessageLine,
        on_turn: Callable[..., bool] | None,
        *,
        gathering: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.line = line
        self._loop = loop
        self._on_turn = on_turn
        self._gathering = gathering
        self._monotonic = monotonic
        #: When the first message in line began to wait for company; None: none does.
        self._held_since: float | None = None
        #: The prefetch limit of the last message.
        self._limit = 0
        self._nudge = Nudge()
        number = self._nudge.fileno()
        loop.on_tick.add(self.tick)
        loop.add_reader(number, self._come_round)
        self._registered: int | None = number

    def leave(self) -> None:
        """Be turned no more. Safe to call again."""
        self._loop.on_tick.discard(self.tick)
        number, self._registered = self._registered, None
        if number is not None:
            self._loop.remove(number)
            self._nudge.close()

    def add(self, one: MessageInLine, limit: int) -> None:
        """Put a message of a channel with this prefetch *limit* in line."""
        self._limit = limit
        self.line.add(one)

    def tick(self) -> None:
        """Take a turn before the loop waits; let it come round for what is left."""
        idle = not self.line and not has_backlog(self._limit)
        self.acknowledge(idle=idle)
        if self.line and self._held_since is None:
            self._nudge.now()
        if self._on_turn is not None and self._on_turn(idle=idle):
            self._nudge.now()  # what follows is done before the loop waits once more

    def acknowledge(self, *, idle: bool) -> None:
        """Acknowledge what is to be; an *idle* loop has nothing to gather for."""
        raise NotImplementedError

    def fetch(self) -> None:
        """Put what has come in line, without waiting; raises what a lost connection does."""

    def turn_soon(self) -> None:
        """Let the loop come round once more before it waits."""
        self._nudge.now()

    def put_back(self, channel: Any, source: str) -> list[MessageInLine]:
        """Take out of the line what came by a cancelled *source*; its claims are freed."""
        return self.line.forget(
            one for one in self.line if one.channel is channel and one.source == source
        )

    def hand_out(self) -> None:
        """Hand out for one turn; raises what a lost connection does."""
        now = self._monotonic
        until = now() + LONGEST_TURN
        while self.line and not self._is_held():
            self.line.hand_out_first()
            if now() > until:
                break

    def _come_round(self) -> None:
        self._nudge.answer()
        self.fetch()
        self.hand_out()

    def _is_held(self) -> bool:
        """True if what is in line may wait for others to be claimed with: the pool has work."""
        first = self.line.first
        few = self._gathering and len(self.line) < max(self._limit // 2, 1)
        if not few or first.shown or first.reread is not None or not has_backlog(self._limit):
            self._held_since = None
            return False
        now = self._monotonic()
        if self._held_since is None:
            self._held_since = now
            self._loop.call_later(self._gathering, self._nudge.now)
        return now - self._held_since < self._gathering
