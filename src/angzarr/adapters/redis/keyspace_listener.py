"""KeyspaceListener: Redis says that one of the lists a consumer found empty was written to.

A blocking pop would take a message before it has an owner. Instead the lists are read on a
connection that Redis tracks for client-side caching (CLIENT TRACKING), and the invalidation that
the next write causes arrives here. It carries no message, so that losing it loses none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

from angzarr.adapters.redis.link import Connection

_log = logging.getLogger("angzarr.transport")

_CHANNEL = "__redis__:invalidate"
#: How errors begin that say nothing of tracking.
_PASSING = ("BUSY", "MISCONF", "MASTERDOWN", "READONLY", "NOAUTH", "WRONGPASS")


class KeyspaceListener:
    """Two connections: commands on `connection` are tracked, `notices.connection` brings the news.

    Where the server does not allow tracking `notifies` is false, and the consumer has to look.
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self.connection: Any = None
        self.notices = _Notices()
        self.notifies = True
        self._pinged = False

    def connect(self) -> None:
        """Open both; raises redis-py's errors."""
        self.connection = self._make()
        self.connection.connect()
        if not self.notifies:
            return
        try:
            self._track(self._make())
        except ResponseError as error:
            if str(error).startswith(_PASSING):
                raise
            _log.warning("no_doorbell: Redis does not track reads (%s), it is asked instead", error)
            self.notifies = False
            self._hang_up()

    def disconnect(self) -> None:
        """Close both."""
        self._hang_up()
        if self.connection is not None:
            self.connection.disconnect()
            self.connection = None

    def answer(self) -> None:
        """Read what Redis has to say; raises redis-py's errors if its connection ended."""
        connection = self.notices.connection
        connection.read_response()
        self._pinged = False
        while connection.can_read(0):
            connection.read_response()

    def check(self) -> None:
        """Send a ping, whose answer is a notice, too; raises TimeoutError if the last had none.

        Redis may still be there: a proxy can acknowledge what is sent and forward nothing.
        """
        connection = self.notices.connection
        if connection is None:
            return
        if self._pinged and not connection.can_read(0):
            msg = "the connection on which Redis tells of new messages does not answer"
            raise TimeoutError(msg)
        self._pinged = True
        connection.send_command("PING", check_health=False)

    def _track(self, notices: Any) -> None:
        self.notices.connection, self._pinged = notices, False
        notices.connect()
        notices.send_command("CLIENT", "ID")
        number = notices.read_response()
        notices.send_command("SUBSCRIBE", _CHANNEL)
        notices.read_response()
        # NOLOOP: this consumer's own pops are not news.
        self.connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", number, "NOLOOP")
        self.connection.read_response()

    def _hang_up(self) -> None:
        if self.notices.connection is not None:
            self.notices.connection.disconnect()
            self.notices.connection = None


class _Notices:
    """What kombu's poller registers: anything with a connection."""

    connection: Any = None
