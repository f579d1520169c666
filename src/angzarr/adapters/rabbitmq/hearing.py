"""Hearing: whether RabbitMQ still answers on a connection, which TCP alone does not tell.

A proxy, or a host that hangs, may go on acknowledging what is sent and forward nothing. Whoever
only waits for messages hears nothing then, and cannot tell it from a queue that is empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from amqp import spec
from amqp.exceptions import RecoverableConnectionError

#: Seconds without a word after which RabbitMQ is asked for one.
ASKED_AFTER: Final = 10.0
#: Seconds that the answer may take: a cluster may pause, and to connect anew costs redeliveries.
ANSWERED_WITHIN: Final = 15.0
#: Seconds of silence from which a worker is not ready: it was asked, and has not answered yet.
NOT_READY_AFTER: Final = 15.0


class Hearing:
    """Watches one connection; used by the thread that reads from it.

    `look` is called when there is nothing to read, so that a thread which was busy elsewhere has
    read the answer before the silence is judged.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._frames = 0
        self._heard_at = monotonic()
        self._asked_at: float | None = None

    def look(self, connection: Any) -> None:
        """Ask RabbitMQ for a word if it is silent; cut *connection* if it stays so.

        Raises RecoverableConnectionError then.
        One that has blocked this connection reads nothing from it: its heartbeats tell then.
        """
        now = self._monotonic()
        if connection.bytes_recv != self._frames or getattr(connection, "blocked", False):
            self._frames, self._heard_at, self._asked_at = connection.bytes_recv, now, None
        elif self._asked_at is not None:
            if now - self._asked_at > ANSWERED_WITHIN:
                # Without a farewell, which nobody may read either.
                connection.collect()
                msg = f"RabbitMQ said nothing for {now - self._heard_at:.0f} s and gave no answer"
                raise RecoverableConnectionError(msg)
        elif now - self._heard_at > ASKED_AFTER and _ask(connection):
            self._asked_at = now

    def silence(self) -> float:
        """Return for how many seconds RabbitMQ owes an answer, or was not asked for one."""
        return 0.0 if self._asked_at is None else self._monotonic() - self._heard_at


def _ask(connection: Any) -> bool:
    """Send what RabbitMQ answers and what changes nothing; False if no channel is open.

    Nobody waits for the answer: any frame is a word.
    """
    for number, channel in connection.channels.items():
        if number and channel is not None and channel.is_open:
            channel.send_method(spec.Channel.Flow, "b", (True,))
            return True
    return False
