"""Takes letters from Pub/Sub, by one stream for each domain, reopened when it is lost.

Google's client keeps the leases of received letters.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.cloud.pubsub_v1.subscriber.scheduler import Scheduler
from google.cloud.pubsub_v1.types import FlowControl

from angzarr.adapters.pubsub.client import CALLS, FAILURES, Clients, reason_of, unavailable
from angzarr.adapters.pubsub.letter_publisher import CONTENT_TYPE
from angzarr.adapters.pubsub.topics import Topics
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt, Room
from angzarr.dead_letters.record import ForeignRecord

#: Leases that one request ends.
_BATCH: Final = 1_000
#: Bytes of letters that one subscription has under way at most.
_MOST_BYTES: Final = 100_000_000


class _AtOnce(Scheduler):
    """Hands letters over in the thread that reads them; the client's own has a pool of ten."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()

    @property
    def queue(self) -> Any:
        return self._queue

    def schedule(self, callback: Any, *args: Any, **kwargs: Any) -> None:
        callback(*args, **kwargs)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Any]:  # noqa: ARG002, FBT001, FBT002 - Google's
        return []


class LetterStream:
    """A stream of one subscription; *inbox* guards it, and is notified when something arrives."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        inbox: threading.Condition,
        *,
        lease: int,
        prefetch: int,
    ) -> None:
        self._clients = clients
        self._subscription = clients.service.subscription(name)
        self._inbox = inbox
        self._arrived: deque[Any] = deque()
        self._held: dict[str, Any] = {}
        self._pull = clients.subscriber.subscribe(
            self._subscription,
            self._arrive,
            flow_control=FlowControl(
                max_messages=prefetch,
                max_bytes=_MOST_BYTES,
                min_duration_per_lease_extension=lease,
                max_duration_per_lease_extension=lease,
            ),
            scheduler=_AtOnce(),
        )
        CALLS.stream(+1)
        self._pull.add_done_callback(self._wake)

    @property
    def ended(self) -> bool:
        """Whether Pub/Sub has ended the stream for good."""
        return bool(self._pull.done())

    @property
    def holds(self) -> bool:
        """True if a reader has a letter of it in hand."""
        return bool(self._held)

    def why_ended(self) -> BaseException | None:
        """The reason why the stream has ended."""
        return self._pull.exception(timeout=0) if self.ended else None

    def take(self, room: Room) -> list[Any]:
        """Letters that have arrived, while there is *room*. To be called with the inbox."""
        taken = []
        while self._arrived and room:
            taken.append(self._arrived.popleft())
            room.take(taken[-1].size)
        self._held.update((message.ack_id, message) for message in taken)
        return taken

    def done(self, ack_ids: Collection[str]) -> None:
        """Let these go for good; those whose lease has ended are ignored."""
        with self._inbox:
            ours = [ack_id for ack_id in ack_ids if ack_id in self._held]
        for batch in _batches(ours):
            again = self._acknowledge(batch)
            self._forget(set(batch) - again)
            if again:
                why = f"{len(again)} letters could not be acknowledged yet"
                raise unavailable(why)

    def stop(self) -> None:
        """Begin to end the stream."""
        self._pull.cancel()

    def await_end(self) -> None:
        """Wait until the stream has ended, or takes too long to."""
        with contextlib.suppress(Exception):  # an error is why it ended
            self._pull.result(timeout=self._clients.service.timeout)
        CALLS.stream(-1)

    def give_back(self) -> None:
        """Give the letters of the stream to the next receiver."""
        with self._inbox:
            ack_ids = [*self._held, *(message.ack_id for message in self._arrived)]
            self._held.clear()
            self._arrived.clear()
        for batch in _batches(ack_ids):
            with contextlib.suppress(*FAILURES):  # their leases end by themselves
                self._clients.subscriber.modify_ack_deadline(
                    subscription=self._subscription, ack_ids=batch, ack_deadline_seconds=0
                )

    def _acknowledge(self, batch: Sequence[str]) -> set[str]:
        """Acknowledge *batch* and return what must be acknowledged again."""
        try:
            self._clients.subscriber.acknowledge(
                subscription=self._subscription, ack_ids=batch, **self._clients.service.once
            )
        except NotFound:  # the subscription was deleted, and its letters with it
            return set()
        except GoogleAPICallError as error:
            again = _to_be_repeated(error, batch)
            if again is None:
                raise
            return again
        return set()

    def _forget(self, ack_ids: Collection[str]) -> None:
        with self._inbox:
            messages = [self._held.pop(ack_id, None) for ack_id in ack_ids]
        for message in filter(None, messages):
            message.drop()  # its lease is renewed no more

    def _arrive(self, message: Any) -> None:
        with self._inbox:
            self._arrived.append(message)
            self._inbox.notify_all()

    def _wake(self, _pull: Any) -> None:
        with self._inbox:
            self._inbox.notify_all()


def _batches(ack_ids: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(ack_ids)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _to_be_repeated(error: GoogleAPICallError, batch: Sequence[str]) -> set[str] | None:
    """The part of *batch* that may still be acknowledged; None if none of it was.

    With exactly-once delivery an error tells of each letter: one whose lease has ended is lost to
    us for good, and a transient failure is worth another try.
    """
    told = {ack_id: why for ack_id, why in (error.metadata or {}).items() if ack_id in batch}
    if not told:
        return None
    return {ack_id for ack_id, why in told.items() if why.startswith("TRANSIENT_")}


#: Letters of one domain under way at most: those taken and not done, and those fetched beforehand.
PREFETCH: Final = 1_000
#: Seconds to look for more once there is a first.
_SOON: Final = 0.01
#: Seconds in which Pub/Sub hears of the end of a stream, and hands it no letter given back.
_FAREWELL: Final = 0.05


class PubSubHandle(NamedTuple):
    """The stream that a letter came by, and Pub/Sub's id for its lease."""

    stream: LetterStream
    ack_id: str


class PubSubLetterReceiver:
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
        """Put away the streams that Pub/Sub has ended; return the reason if it is to be logged.

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
    handle = PubSubHandle(stream, message.ack_id)
    record = functools.partial(record_of, message)
    return read_receipt(domain, message.data, content_type, handle, record)


def record_of(message: Any) -> ForeignRecord:
    """The attributes, ordering key, id and time of *message*."""
    return ForeignRecord(
        broker="pubsub",
        place={"message_id": message.message_id},
        is_unique=True,
        key=message.ordering_key.encode() if message.ordering_key else None,
        headers=tuple(message.attributes.items()),
        properties={"publish_time": message.publish_time.isoformat()},
    )
