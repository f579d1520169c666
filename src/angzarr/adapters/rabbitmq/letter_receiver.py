"""Takes letters from RabbitMQ: prefetched, acknowledged late."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from angzarr.adapters.rabbitmq.link import FAILURES, BrokerCluster, LetterConnection, connect, told
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import BATCH_BYTES, Receipt, Room
from angzarr.dead_letters.record import ForeignRecord
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)
#: Letters that the broker hands out ahead, per domain; who has as many in hand asks for each. Twice
#: what the analysis worker takes at once, so that the next come while it works on those.
_PREFETCH: Final = 500
#: Seconds; lets the broker give the letters of a vanished receiver to another.
_HEARTBEAT: Final = 60
#: Seconds to look for more once there is a first.
_SOON: Final = 0.01


class RabbitMQHandle(NamedTuple):
    """A delivery: the number of the connection it came by, and its tag there."""

    link: int
    tag: int


class _WaitingLetter(NamedTuple):
    queue: str
    domain: str
    message: Any


def up_to(done: AbstractSet[int], in_hand: AbstractSet[int]) -> int:
    """The highest of *done* with nothing below it *in_hand* that is not done, 0 for none.

    What was delivered and not handed out yet has a higher number than all that was.
    """
    first = min(in_hand - done, default=None)
    return max((tag for tag in done if first is None or tag < first), default=0)


class RabbitMQLetterReceiver:
    """Consumes the queues of the domains last asked for. Safe from any thread, one at a time."""

    def __init__(
        self, cluster: BrokerCluster, timeout: float, *, create_missing: bool, check: QueueCheck
    ) -> None:
        self._cluster = cluster
        self._check = check
        self._create_missing = create_missing
        self._timeout = timeout
        self._lock = threading.Lock()
        self._link: LetterConnection | None = None
        self._links = 0
        self._consumers: dict[str, str] = {}
        self._waiting: deque[_WaitingLetter] = deque()
        self._waiting_bytes = 0
        #: The queue of each letter that was handed out, by its tag.
        self._unacknowledged: dict[int, str] = {}
        self._in_hand: Counter[str] = Counter()
        self._beaten_at = 0.0
        self._seldom = LogThrottle()

    def receive(self, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        """Take up to *limit* letters, waiting at most *wait* seconds for the first."""
        with self._lock:
            reused = self._link is not None
            try:
                return self._take(self._link or self._connect(), domains, limit, wait)
            except FAILURES:
                self._drop()
                if not reused:
                    raise
            return self._take(self._connect(), domains, limit, wait)

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Acknowledge what came by the connection that is still open."""
        with self._lock:
            try:
                self._acknowledge(
                    {receipt.handle.tag for receipt in receipts if self._has(receipt)}
                )
            except FAILURES:
                self._drop()
                raise

    def waiting(self, domains: Sequence[str]) -> dict[str, int]:
        """Count the letters of *domains* that were not handed out; connects when needed."""
        with self._lock:
            try:
                link = self._link or self._connect()
                ahead = Counter(one.queue for one in self._waiting)
                return {d: link.topology.count(d) + ahead[queue_name(d)] for d in domains}
            except FAILURES:
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection; the broker gives back what was not acknowledged."""
        with self._lock:
            if self._link:
                self._link.close()
            self._forget()

    def leave(self) -> None:
        """Let go of a connection that a forked child inherited."""
        if self._link:
            self._link.leave()

    def _take(
        self, link: LetterConnection, domains: Sequence[str], limit: int, wait: float
    ) -> list[Receipt]:
        self._beat(link)
        wanted = {queue_name(domain): domain for domain in domains}
        self._subscribe(link, wanted)
        self._fetch(link, wanted, limit)
        deadline = time.monotonic() + wait
        # What is not read here the broker keeps: it sends no more than the connection holds.
        while len(self._waiting) < limit and self._waiting_bytes < BATCH_BYTES:
            left = deadline - time.monotonic()
            said = link.drain(_SOON if self._waiting else left)
            if not said and (self._waiting or time.monotonic() >= deadline):
                break
        room, taken = Room(limit), list[Receipt]()
        while self._waiting and room:
            taken.append(self._hand_out())
            room.take(len(taken[-1].raw))
        return taken

    def _fetch(self, link: LetterConnection, wanted: dict[str, str], limit: int) -> None:
        """Ask for letters of queues of which so many are in hand that none come by themselves."""
        for queue in wanted.keys() & self._consumers.keys():
            while (
                self._in_hand[queue] >= _PREFETCH
                and len(self._waiting) < limit
                and self._waiting_bytes < BATCH_BYTES
            ):
                message = link.channel.basic_get(queue)
                if message is None:
                    break
                self._on_message(queue, wanted[queue], message)

    def _hand_out(self) -> Receipt:
        queue, domain, message = self._waiting.popleft()
        self._waiting_bytes -= len(message.body)
        self._unacknowledged[message.delivery_tag] = queue
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        content_type = message.properties.get("content_type", "")
        handle = RabbitMQHandle(self._links, message.delivery_tag)
        record = functools.partial(record_of, message, queue)
        return read_receipt(domain, body, content_type, handle, record)

    def _subscribe(self, link: LetterConnection, wanted: dict[str, str]) -> None:
        for queue in self._consumers.keys() - wanted.keys():
            link.channel.basic_cancel(self._consumers.pop(queue))
        for one in [one for one in self._waiting if one.queue not in wanted]:
            self._waiting.remove(one)
            self._waiting_bytes -= len(one.message.body)
            self._in_hand[one.queue] -= 1
            link.channel.basic_reject(one.message.delivery_tag, requeue=True)
        for queue in wanted.keys() - self._consumers.keys():
            self._consume(link, queue, wanted[queue])

    def _consume(self, link: LetterConnection, queue: str, domain: str) -> None:
        if problem := link.topology.problem(domain):
            if self._seldom.now(queue):
                _LOG.warning(
                    "dead_letters_not_read: those of %r cannot be read: %s", domain, problem
                )
            return
        self._consumers[queue] = link.channel.basic_consume(
            queue,
            callback=functools.partial(self._on_message, queue, domain),
            on_cancel=functools.partial(self._on_cancel, link, queue),
        )

    def _on_message(self, queue: str, domain: str, message: Any) -> None:
        self._waiting.append(_WaitingLetter(queue, domain, message))
        self._waiting_bytes += len(message.body)
        self._in_hand[queue] += 1

    def _on_cancel(self, link: LetterConnection, queue: str, _tag: str) -> None:
        """Note that the queue was deleted: it is declared anew when next asked for."""
        self._consumers.pop(queue, None)
        link.topology.forget()

    def _has(self, receipt: Receipt) -> bool:
        handle: RabbitMQHandle = receipt.handle
        return handle.link == self._links and handle.tag in self._unacknowledged

    def _acknowledge(self, tags: set[int]) -> None:
        """Acknowledge *tags*, with one word as many as nothing in hand lies between."""
        if self._link is None or not tags:
            return
        together = up_to(tags, self._unacknowledged.keys())
        with self._link.buffered():
            if together:
                self._link.channel.basic_ack(together, multiple=True)
            for tag in sorted(tag for tag in tags if tag > together):
                self._link.channel.basic_ack(tag)
        for tag in tags:
            self._in_hand[self._unacknowledged.pop(tag)] -= 1

    def _beat(self, link: LetterConnection) -> None:
        if time.monotonic() - self._beaten_at > _HEARTBEAT / 3:
            link.connection.send_heartbeat()
            self._beaten_at = time.monotonic()

    def _connect(self) -> LetterConnection:
        with told(self._cluster):
            link = connect(
                self._cluster,
                timeout=self._timeout,
                heartbeat=_HEARTBEAT,
                create_missing=self._create_missing,
                check=self._check,
            )
            link.channel.basic_qos(0, _PREFETCH, a_global=False)
        self._forget()
        self._link = link
        self._links += 1
        return link

    def _drop(self) -> None:
        if self._link:
            self._link.cut()
        self._forget()

    def _forget(self) -> None:
        self._link = None
        self._consumers.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unacknowledged.clear()
        self._in_hand.clear()


#: The property that is a table of headers.
_HEADERS: Final = "application_headers"


def record_of(message: Any, queue: str) -> ForeignRecord:
    """Headers, properties and place of *message*, which lay in *queue*.

    RabbitMQ numbers no messages: two of the same bytes, headers and properties are one.
    """
    properties = {name: value for name, value in message.properties.items() if value is not None}
    headers = properties.pop(_HEADERS, None) or {}
    info = message.delivery_info or {}
    return ForeignRecord(
        broker="rabbitmq",
        place={
            "queue": queue,
            "exchange": info.get("exchange") or "",
            "routing_key": info.get("routing_key") or "",
        },
        headers=tuple((str(name), value) for name, value in headers.items()),
        properties=properties,
    )
