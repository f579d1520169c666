"""Arrivals: what a worker has read from RabbitMQ and not yet handed to its consumers.

RabbitMQ sends messages one by one. A worker reads all that have come, and shows them together to
who claims them just before the first of them is handed out. A loop sends the acknowledgements of
one turn in one write.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from amqp.exceptions import RecoverableConnectionError

from angzarr.runtime.backlog import has_backlog
from angzarr.runtime.nudge import Nudge

_log = logging.getLogger("angzarr.transport")

#: Events that one turn reads at most.
MOST_A_TURN: Final = 64
#: Seconds after which one turn hands out no more: results and acknowledgements must not wait. A
#: solo worker runs each task meanwhile.
LONGEST_TURN: Final = 0.0005
#: Seconds that messages may wait to be claimed together while the pool has enough to do.
GATHERING: Final = 0.002
_NOTHING_YET: Final = (errno.EAGAIN, errno.EINTR)


@dataclass(slots=True, eq=False)
class Arrival:
    """One message in line, for *callback*; redelivered ones are read when they are handed out."""

    channel: Any
    callback: Callable[[Any], Any]
    message: Any
    consumer: str
    shown: bool


class ArrivalLine:
    """The messages of one connection in their order; used by the thread that reads them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._line: deque[Arrival] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def __iter__(self) -> Iterator[Arrival]:
        """Those that wait."""
        return iter(self._line)

    @property
    def first(self) -> Arrival:
        """The next one to be handed out."""
        return self._line[0]

    def add(self, channel: Any, callback: Callable[[Any], Any], raw: Any) -> None:
        """Put a message in line."""
        consumer, came_before = raw.delivery_info["consumer_tag"], raw.delivery_info["redelivered"]
        message = raw if came_before else channel.message_to_python(raw)
        self._line.append(Arrival(channel, callback, message, consumer, shown=bool(came_before)))

    def hand_out_first(self) -> None:
        """Give the first one to its consumer; raises what a lost connection does."""
        if not self._line[0].shown:
            self._show()
        one = self._line.popleft()
        try:
            one.channel.hand_over(one.callback, one.message)
        except BaseException:  # a lost connection: RabbitMQ gives the message to others
            self._call(self._connection.on_put_back, [one])
            raise

    def hand_out_all(self) -> None:
        """Give each to its consumer; what a lost connection leaves has its claims freed."""
        try:
            while self._line:
                self.hand_out_first()
        finally:
            self.forget(self._line)

    def forget(self, arrivals: Iterable[Arrival]) -> None:
        """Hand out none of *arrivals*; their claims are freed."""
        gone = list(arrivals)
        for one in gone:
            self._line.remove(one)
        self._call(self._connection.on_put_back, gone)

    def _show(self) -> None:
        """Let those who claim see what they have not seen; what they raise stops nothing."""
        fresh = [one for one in self._line if not one.shown]
        for one in fresh:
            one.shown = True
        self._call(self._connection.on_fetched, fresh)

    def _call(self, heard: Callable[[list[Any]], object] | None, what: list[Arrival]) -> None:
        if heard is None or not what:
            return
        try:
            heard([one.message for one in what])
        except Exception:  # noqa: BLE001 - each message goes its way without it
            _log.exception("fetched_messages_not_told")


def read_waiting(connection: Any) -> bool:
    """Read what has come, without waiting; True if there may be more. Raises lost connections."""
    for _ in range(MOST_A_TURN):
        if not connection.connected:
            msg = "Socket was disconnected"
            raise RecoverableConnectionError(msg)
        try:
            connection.drain_events(timeout=0)
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno in _NOTHING_YET:
                return False
            raise
    return True


class Arrivals:
    """The line of one connection in one loop; used by the loop's thread."""

    def __init__(self, connection: Any, loop: Any) -> None:
        self._connection = connection
        self._loop = loop
        self._line = ArrivalLine(connection)
        self._nudge = Nudge()
        number = self._nudge.fileno()
        #: When the first message in line began to wait for company; None: none does.
        self._held_since: float | None = None
        #: The prefetch limit of the last message.
        self._limit = 0
        #: Channels with something to acknowledge.
        self.acknowledging: set[Any] = set()
        loop.on_tick.add(self.tick)
        loop.add_reader(number, self._go_on)
        self._registered: int | None = number

    def leave(self) -> None:
        """Be turned no more; RabbitMQ gives to others what is in line. Safe to call again."""
        self._loop.on_tick.discard(self.tick)
        number, self._registered = self._registered, None
        if number is not None:
            self._loop.remove(number)
            self._nudge.close()
        self._line.forget(self._line)

    def add(self, channel: Any, callback: Callable[[Any], Any], raw: Any) -> None:
        """Put a message in line."""
        self._line.add(channel, callback, raw)

    def read(self) -> None:
        """Read what has come, without waiting, and hand out; raises what a lost connection does."""
        if read_waiting(self._connection):
            self._nudge.now()  # what TLS has decrypted makes no descriptor readable
        self._hand_out()

    def tick(self) -> None:
        """Acknowledge what is to be, before the loop waits; let it come round for what is left."""
        self.acknowledge()
        if self._line and self._held_since is None:
            self._nudge.now()
        turn = self._connection.on_turn
        if turn is not None and turn(idle=not self._line and not has_backlog(self._limit)):
            self._nudge.now()  # what follows is done before the loop waits once more

    def acknowledge(self) -> None:
        """Send what the channels have to acknowledge."""
        while self.acknowledging:
            self.acknowledging.pop().send_acks()

    def put_back(self, channel: Any, consumer: str) -> None:
        """Return what is in line for a cancelled *consumer*; its claims are freed first."""
        back = [one for one in self._line if one.channel is channel and one.consumer == consumer]
        self._line.forget(back)
        for one in reversed(back):
            channel.basic_reject(one.message.delivery_info["delivery_tag"], requeue=True)

    def forget(self, channel: Any) -> None:
        """Forget what came by a *channel* that is closed."""
        self.acknowledging.discard(channel)
        self._line.forget(one for one in self._line if one.channel is channel)

    def _go_on(self) -> None:
        self._nudge.answer()
        if self._connection.connected:
            self.read()

    def _hand_out(self) -> None:
        until = time.monotonic() + LONGEST_TURN
        while self._line and not self._is_held():
            self._line.hand_out_first()
            if time.monotonic() > until:
                break

    def _is_held(self) -> bool:
        """True if what is in line may wait for others to be claimed with: the pool has work."""
        first, now = self._line.first, time.monotonic()
        self._limit = first.channel.prefetch_count
        busy = len(self._line) < max(self._limit // 2, 1) and has_backlog(self._limit)
        if first.shown or not busy:
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = now
            self._loop.call_later(GATHERING, self._nudge.now)
        return now - self._held_since < GATHERING
