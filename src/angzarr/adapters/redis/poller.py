"""Poller: turns the channels of one connection, in Celery's event loop or under drain_events.

Under drain_events another thread or greenlet may acknowledge: that ends the wait, for there is room
for more messages then.

In a loop a lost Redis raises nothing: Celery would restart its consumer and cancel running tasks.
The channels come back by themselves (see Fetcher). Under drain_events it raises, as stock does.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from queue import Empty
from typing import Any

from kombu.transport.redis import MultiChannelPoller
from kombu.utils.eventio import ERR, READ

from angzarr.adapters.redis.session import AWAY
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.nudge import Nudge

_log = logging.getLogger("angzarr.transport")

STEP, NOTICE, LISTEN = "STEP", "NOTICE", "LISTEN"
#: Messages delivered in one turn of a loop: more wait, so that results are not kept waiting.
MOST_A_TURN = 64
#: The longest that drain_events waits in one go, in seconds, so that it looks around.
LONGEST_WAIT = 1.0
#: Seconds between two looks for messages that a channel holds without knowing; twice seen, they
#: go back.
STRAYS_EVERY = 10.0

_NO_REPLY = "no reply to a step"


class Poller(MultiChannelPoller):
    """kombu's poller, but for how messages are fetched."""

    #: The event loop that turns this poller, if one does.
    loop: Any = None
    #: Whether a wait of `drain_events` listens to the nudge.
    _hears_nudge = False
    _deaf_until = 0.0
    _turning_soon = False

    def __init__(self) -> None:
        super().__init__()
        self._nudge = Nudge()
        self._strays_at = time.monotonic()
        self._seldom = LogThrottle()

    @property
    def looped(self) -> bool:
        """Whether an event loop turns this poller."""
        return self.loop is not None

    # -- in a loop -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Take a turn with every channel; called before the loop waits."""
        for channel in tuple(self._channels):
            self._turn_quietly(channel)
            if channel.fetcher is not None and channel.fetcher.ready:
                self._nudge.now()
        readers = self.loop.readers
        for fd in self._fd_to_chan:
            if fd not in readers:
                self.loop.add_reader(fd, self.on_readable, fd)

    def on_readable(self, fileno: int) -> None:
        """Read what there is for us; a connection that ended is opened again later."""
        found = self._fd_to_chan.get(fileno)
        if found is None:
            return
        channel, kind = found
        try:
            self._read(channel, kind)
        except AWAY as error:
            self._lost(channel, kind, error)
            return
        if kind == STEP:
            channel.deliver(MOST_A_TURN)
        if kind != LISTEN and channel.fetcher is not None:
            self.turn_soon(channel.fetcher)

    def enter(self, loop: Any) -> None:
        """Be turned by *loop* from now on."""
        self.on_poll_init(loop.poller)
        self.loop = loop
        loop.on_tick.add(self.tick)
        loop.add_reader(self._nudge.fileno(), self._deliver_the_rest)

    def leave(self) -> None:
        """Be turned no more."""
        if self.loop is not None:
            self.loop.on_tick.discard(self.tick)
            self.loop.remove(self._nudge.fileno())
        elif self._hears_nudge:
            self._hears_nudge = False
            self.poller.unregister(self._nudge.fileno())
        self._nudge.close()

    def _deliver_the_rest(self) -> None:
        """Deliver what waits, in the phase of the loop after which acknowledgements are made."""
        self._nudge.answer()
        for channel in tuple(self._channels):
            channel.deliver(MOST_A_TURN)

    def turn_soon(self, fetcher: Any) -> None:
        """Wake the loop when *fetcher* is to turn, or `drain_events` now. Not from within `tick`.

        The loop has decided by then how long it waits. From any thread without a loop.
        """
        if self.loop is None:
            self._nudge.now()
            return
        if self._turning_soon:
            return
        delay = fetcher.turn_in()
        if delay is not None:
            self._turning_soon = True
            self.loop.call_later(delay, self._turn_now)

    def _turn_now(self) -> None:
        """Let the loop come round: `tick` is called next."""
        self._turning_soon = False
        for channel in tuple(self._channels):
            fetcher = channel.fetcher
            if channel.is_fetching and (fetcher.is_lost or not fetcher.listener.notifies):
                self.turn_soon(fetcher)

    def _turn_quietly(self, channel: Any) -> None:
        if channel.active_fanout_queues and time.monotonic() >= self._deaf_until:
            try:
                self._register_LISTEN(channel)
            except AWAY as error:
                self._lost(channel, LISTEN, error)
        if not channel.is_fetching:
            return
        try:
            self._turn(channel)
        except AWAY as error:
            self._lost(channel, STEP, error)

    def _lost(self, channel: Any, kind: str, error: Exception) -> None:
        if kind == LISTEN:
            if self._seldom.now():
                _log.warning("fanout_lost: %s; remote control is deaf until Redis is back", error)
            self._deaf_until = time.monotonic() + 1.0
            if channel.subclient.connection is not None:
                channel.subclient.connection.disconnect()
            channel._in_listen = None  # noqa: SLF001 - kombu's, and our base class
        else:
            self.forget(channel)
            channel.fetcher.lost(error)
            self.turn_soon(channel.fetcher)

    # -- under drain_events --------------------------------------------------------------------

    def get(self, callback: Any, timeout: float | None = None) -> None:  # noqa: ARG002 - kombu's
        """Deliver one message, or raise Empty after *timeout* seconds or less."""
        self._in_protected_read = True
        try:
            self.maybe_refresh_binding_expiry()
            if not self._take_turn(timeout):
                self.maybe_restore_messages()
                if time.monotonic() - self._strays_at > STRAYS_EVERY:
                    self._strays_at = time.monotonic()
                    self.give_back_strays()
                raise Empty
        finally:
            self._in_protected_read = False
            while self.after_read:
                self.after_read.pop()()

    def _take_turn(self, timeout: float | None) -> bool:
        if any(channel.deliver(1) for channel in tuple(self._channels)):
            return True
        wait = LONGEST_WAIT if timeout is None else min(timeout, LONGEST_WAIT)
        for channel in tuple(self._channels):
            if channel.active_fanout_queues:
                self._register_LISTEN(channel)
            if channel.is_fetching:
                if not channel.room():
                    self._hear_nudge()  # before the turn, which looks for room once more
                self._or_lost(channel, self._turn)
                wait = min(wait, channel.fetcher.turn_in() or wait)
        events = self.poller.poll(wait) or ()
        if not events:
            self._raise_overdue()
        return any(event & (READ | ERR) and self._handle(fileno) for fileno, event in events)

    def _hear_nudge(self) -> None:
        if not self._hears_nudge:
            self._hears_nudge = True
            self.poller.register(self._nudge.fileno(), READ)

    def _raise_overdue(self) -> None:
        for channel in self._overdue():
            self._or_lost(channel, _time_out)

    def _handle(self, fileno: int) -> bool:
        channel, kind = self._fd_to_chan.get(fileno, (None, ""))
        if channel is None:
            if self._hears_nudge and fileno == self._nudge.fileno():
                self._nudge.answer()
            return False
        if kind == LISTEN:
            return bool(channel.handlers[LISTEN]())
        self._or_lost(channel, lambda channel: self._read(channel, kind))
        return bool(channel.deliver(1))

    def _or_lost(self, channel: Any, step: Any) -> Any:
        try:
            return step(channel)
        except AWAY:
            self.forget(channel)
            channel.fetcher.forget()
            raise

    # -- both ----------------------------------------------------------------------------------

    def _turn(self, channel: Any) -> None:
        channel.fetcher.turn()
        listener = channel.fetcher.listener
        if listener.connection is not None and (channel, listener, STEP) not in self._chan_to_sock:
            self._register(channel, listener, STEP)
            if listener.notices.connection is not None:
                self._register(channel, listener.notices, NOTICE)

    def _read(self, channel: Any, kind: str) -> None:
        if kind == LISTEN:
            # The event may be of a connection that is gone and had this number; kombu's read waits
            # for ever, and with it the loop.
            listening = channel.subclient.connection
            if listening is not None and listening.can_read(timeout=0):
                channel.handlers[LISTEN]()
        elif channel.fetcher is not None:
            if kind == STEP:
                channel.fetcher.on_reply()
            else:
                channel.fetcher.on_notice()

    def forget(self, channel: Any) -> None:
        """Stop watching the connections of *channel*'s steps, which are closed next."""
        for ident in [i for i in self._chan_to_sock if i[0] is channel and i[2] in (STEP, NOTICE)]:
            del self._chan_to_sock[ident]
        for fd, (owner, kind) in list(self._fd_to_chan.items()):
            if owner is channel and kind in (STEP, NOTICE):
                self._unwatch(fd)

    def check_health(self) -> None:
        """Give up a connection whose reply is overdue; its other end may be gone."""
        for channel in self._overdue():
            self._lost(channel, STEP, TimeoutError(_NO_REPLY))

    def _overdue(self) -> list[Any]:
        """The channels whose step was not answered in the time that a socket has."""
        return [
            channel
            for channel in tuple(self._channels)
            if channel.is_fetching and channel.fetcher.overdue(channel.socket_timeout or 5.0)
        ]

    def give_back_strays(self) -> None:
        """Let each channel look for messages that it holds without knowing."""
        for channel in tuple(self._channels):
            try:
                channel.give_back_strays()
            except AWAY as error:
                _log.debug("strays_not_looked_for: %s", error)

    def ping_listeners(self) -> None:
        """Say something on the connections that only listen, so that a dead one is found out."""
        for channel in tuple(self._channels):
            if channel.is_fetching:
                try:
                    channel.fetcher.listener.check()
                except AWAY as error:
                    self._lost(channel, NOTICE, error)

    def discard(self, channel: Any) -> None:
        """Forget *channel*, which is being closed."""
        self.forget(channel)
        super().discard(channel)

    def _on_connection_disconnect(self, connection: Any) -> None:
        """Forget a connection that listens for fanout; kombu calls this when it is closed."""
        for ident in list(self._chan_to_sock):
            channel, client, kind = ident
            if client.connection is connection and kind == LISTEN:
                del self._chan_to_sock[ident]
                for fd, found in list(self._fd_to_chan.items()):
                    if found == (channel, kind):
                        self._unwatch(fd)

    def _unwatch(self, fd: int) -> None:
        del self._fd_to_chan[fd]
        with suppress(OSError, KeyError, ValueError):  # closed already, and so not watched
            if self.loop is not None:
                self.loop.remove(fd)
            else:
                self.poller.unregister(fd)


def _time_out(_channel: Any) -> None:
    raise TimeoutError(_NO_REPLY)
