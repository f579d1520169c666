"""Receives messages: notes the queue of each, and reads a redelivered one with care.

Neither a routing key nor a header names the queue that a message came from. A redelivered message
may have killed its reader, and neither RabbitMQ nor SQS counts that. So the claim store keeps a
note while a worker unpacks and parses it. A note that is still there means that its reader died.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kombu import Consumer

from angzarr.adapters.celery.worker.message_limits import read_body
from angzarr.delivery.unreadable import ReadersDied, ReadMode, reading_after
from angzarr.resilience.idempotency import (
    FIRST,
    Claim,
    Claimed,
    Ending,
    IdempotencyStore,
    Release,
    Wait,
    key_part,
)
from angzarr.runtime.json_bounds import Bounds

_log = logging.getLogger("angzarr.worker")

#: The attribute in which a message has the name.
_NAME: Final = "angzarr_consumed_from"


def consumed_from(message: Any) -> str | None:
    """The queue that *message* was consumed from; None: by another consumer."""
    name: str | None = getattr(message, _NAME, None)
    return name


#: Reads what is delivered once more: its queue, what tells it from others, what makes it a message,
#: and what makes it one with its body as it came.
Reread: TypeAlias = Callable[[str, bytes, Callable[[], Any], Callable[[], Any]], Any]


class QueueReceiver:
    """The callback of a channel for the messages of one queue; see `NamingConsumer`."""

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
        receive = QueueReceiver(queue.name, self._receive_from, self._reread)
        queue.consume(tag, receive, no_ack=no_ack, nowait=nowait)
        return tag

    def _receive_from(self, queue: str, message: Any) -> Any:
        # What it makes of the message is the same message, when kombu asks for it once more.
        message = self.channel.message_to_python(message)
        setattr(message, _NAME, queue)
        return self._receive_callback(message)


#: The attribute of a message that is not read, which says why.
_DIED: Final = "angzarr_readers_died"
#: What a note leaves that was taken back: a record without a start, for so long.
_READ: Final = Wait(position=FIRST, life=timedelta(minutes=1))
#: Seconds for which a store that is away is not asked: messages are read as if it were not there.
_AWAY_FOR: Final = 5.0


class _Note(NamedTuple):
    """That a message is being read; it is a claim whose owner has no lease, and so is dead."""

    key: str
    token: str
    #: How many readers left theirs.
    deaths: int


class RedeliveredReader:
    """Reads redelivered messages; used on a worker's loop."""

    def __init__(
        self,
        store: IdempotencyStore,
        bounds: Bounds,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._monotonic = monotonic
        self._ask_from = float("-inf")

    def read(
        self,
        queue: str,
        identity: bytes,
        make: Callable[[], Any],
        keep_packed: Callable[[], Any],
    ) -> Any:
        """The message of *queue* that *make* unpacks, its body read, or one to dead-letter.

        *identity* tells it from all others. What killed its readers is not unpacked: it is what
        *keep_packed* returns, and `readers_died` says why. A body that cannot be read is found
        again by the consumer of the message; a claim store that is away notes nothing.
        """
        note = self._begin(queue, identity)
        if note is None:
            return make()
        if reading_after(note.deaths, redelivered=True) is ReadMode.NEVER:
            self._end(note, Release())  # the deaths stay noted until it is a letter
            message = keep_packed()
            setattr(message, _DIED, ReadersDied(note.deaths, note.deaths))
            return message
        try:
            message = make()
            self._read_body(message)
        finally:
            self._end(note, _READ)
        return message

    def _read_body(self, message: Any) -> None:
        if message.errors:  # it could not be unpacked
            return
        try:
            read_body(message, self._bounds)
        except Exception as error:  # noqa: BLE001 - the consumer of the message finds it again
            _log.debug("reread_failed: %r", error)

    def _begin(self, queue: str, identity: bytes) -> _Note | None:
        if self._monotonic() < self._ask_from:
            return None
        token = os.urandom(16).hex()
        key = f"reading:{key_part(queue)}:{hashlib.sha256(identity).hexdigest()}"
        try:
            (answer,) = self._store.claim([Claim(key=key, token=token, owner=f"reader:{token}")])
        except Exception as error:  # noqa: BLE001 - without a note it is read as it always was
            self._away(error)
            return None
        if not isinstance(answer, Claimed):
            return None
        return _Note(key, token, answer.starts - 1)

    def _end(self, note: _Note, ending: Ending) -> None:
        try:
            self._store.settle(note.key, note.token, ending)
        except Exception as error:  # noqa: BLE001 - it may count as a death, one of three
            self._away(error)

    def _away(self, error: Exception) -> None:
        self._ask_from = self._monotonic() + _AWAY_FOR
        _log.debug("reading_not_noted: %r", error)


def readers_died(message: Any) -> ReadersDied | None:
    """The reason not to read *message*, or None."""
    died: ReadersDied | None = getattr(message, _DIED, None)
    return died


def is_packed(message: Any) -> bool:
    """True if the body of *message* is compressed still, if it ever was."""
    if readers_died(message) is not None:
        return True
    return bool(getattr(message, "errors", None)) and not isinstance(message.body, str)
