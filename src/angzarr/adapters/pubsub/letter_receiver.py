"""Takes letters from Pub/Sub: one stream a domain, each asked in turn, opened again when lost."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.api_core.exceptions import NotFound

from angzarr.adapters.pubsub.client import Clients, reason_of, unavailable
from angzarr.adapters.pubsub.letter_publisher import CONTENT_TYPE
from angzarr.adapters.pubsub.letter_stream import LetterStream
from angzarr.adapters.pubsub.record import record_of
from angzarr.adapters.pubsub.topics import Topics
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt, Room

#: Letters of one domain under way at most: those taken and not done, and those fetched beforehand.
PREFETCH: Final = 1_000
#: Seconds to look for more once there is a first.
_SOON: Final = 0.01
#: Seconds in which Pub/Sub hears of the end of a stream, and hands it no letter given back.
_FAREWELL: Final = 0.05


class Handle(NamedTuple):
    """The stream that a letter came by, and Pub/Sub's id for its lease."""

    stream: LetterStream
    ack_id: str


class LetterReceiver:
    """Receives and acknowledges; safe from any thread, one receives at a time."""

    def __init__(self, clients: Clients, topics: Topics, lease: int) -> None:
        self._clients = clients
        self._topics = topics
        self._lease = lease
        self._lock = threading.Lock()
        self._inbox = threading.Condition()
        self._streams: dict[str, LetterStream] = {}
        self._opened_at: dict[str, int] = {}  # name → how often it had been made
        self._turn: deque[str] = deque()

    def receive(self, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        """Take up to *limit* letters, waiting at most *wait* seconds for the first."""
        wanted = {queue_name(domain): domain for domain in domains}
        with self._lock:
            refused = self._follow(wanted)
            if len(refused) < len(wanted):
                taken = self._await(limit, time.monotonic() + wait)
            else:
                taken = []
        if refused and not taken:  # what the others have is taken before it is told
            raise unavailable(next(iter(refused.values())))
        return [_receipt(wanted[name], stream, message) for name, stream, message in taken]

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Let *receipts* go for good."""
        by_stream: dict[LetterStream, list[str]] = {}
        for receipt in receipts:
            by_stream.setdefault(receipt.handle.stream, []).append(receipt.handle.ack_id)
        for stream, ack_ids in by_stream.items():
            stream.done(ack_ids)

    def close(self) -> None:
        """Give back what is held or was fetched beforehand."""
        with self._lock:
            if self._streams:
                self._clients.subscriber.end()
            self._end(list(self._streams))

    def _follow(self, wanted: Collection[str]) -> dict[str, str]:
        """Open and end streams so that *wanted* are read; return why some are not."""
        refused = self._lost()
        self._end([n for n, one in self._streams.items() if n not in wanted and not one.holds])
        refused |= self._topics.ensure([n for n in wanted if n not in refused], reading=True)
        self._end([n for n in self._streams if self._topics.made(n) != self._opened_at[n]])
        for name in wanted:
            if name not in refused and name not in self._streams:
                self._opened_at[name] = self._topics.made(name)
                self._streams[name] = LetterStream(
                    self._clients, name, self._inbox, lease=self._lease, prefetch=PREFETCH
                )
        self._turn = deque(name for name in self._turn if name in wanted)
        self._turn.extend(name for name in wanted if name not in self._turn)
        return {name: why for name, why in refused.items() if name in wanted}

    def _lost(self) -> dict[str, str]:
        """Put away the streams that Pub/Sub has ended; return why, where that is to be told.

        A subscription that was deleted is made anew, the others are tried again by the next call.
        """
        told = {}
        for name in [name for name, stream in self._streams.items() if stream.ended]:
            why = self._streams[name].why_ended()
            self._end([name])
            self._topics.forget(name)
            if why and not isinstance(why, NotFound):
                told[name] = reason_of(why)
        return told

    def _end(self, names: Sequence[str]) -> None:
        streams = [self._streams.pop(name) for name in names]
        for stream in streams:
            stream.stop()
        for stream in streams:
            stream.await_end()
        if streams:
            time.sleep(_FAREWELL)
        for stream in streams:
            stream.give_back()

    def _await(self, limit: int, deadline: float) -> list[tuple[str, LetterStream, Any]]:
        room = Room(limit)
        with self._inbox:
            while True:
                taken = self._look(room)
                left = deadline - time.monotonic()
                if taken or left <= 0 or any(one.ended for one in self._streams.values()):
                    break
                self._inbox.wait(left)
            deadline = time.monotonic() + _SOON
            while taken and room and (left := deadline - time.monotonic()) > 0:
                self._inbox.wait(left)
                taken += self._look(room)
            return taken

    def _look(self, room: Room) -> list[tuple[str, LetterStream, Any]]:
        """Take what has arrived, beginning with the domain after the one looked at last."""
        taken: list[tuple[str, LetterStream, Any]] = []
        for _ in range(len(self._turn)):
            if not room:
                break
            self._turn.rotate(-1)
            name = self._turn[-1]
            if stream := self._streams.get(name):
                taken += [(name, stream, one) for one in stream.take(room)]
        return taken


def _receipt(domain: str, stream: LetterStream, message: Any) -> Receipt:
    attributes: Mapping[str, str] = message.attributes
    content_type = attributes.get(CONTENT_TYPE, "")
    handle = Handle(stream, message.ack_id)
    record = functools.partial(record_of, message)
    return read_receipt(domain, message.data, content_type, handle, record)
