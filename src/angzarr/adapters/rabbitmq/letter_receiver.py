"""Takes letters from RabbitMQ: prefetched, acknowledged late."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from angzarr.adapters.rabbitmq.link import FAILURES, Cluster, Link, connect, told
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt

#: Letters that the broker hands out ahead, per domain.
_PREFETCH: Final = 50
#: Seconds; lets the broker give the letters of a vanished receiver to another.
_HEARTBEAT: Final = 60
#: Seconds to look for more once there is a first.
_SOON: Final = 0.01


class Handle(NamedTuple):
    """A delivery: the number of the connection it came by, and its tag there."""

    link: int
    tag: int


class _Waiting(NamedTuple):
    queue: str
    domain: str
    message: Any


class LetterReceiver:
    """Consumes the queues of the domains last asked for. Safe from any thread, one at a time."""

    def __init__(self, cluster: Cluster, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._links = 0
        self._consumers: dict[str, str] = {}
        self._waiting: deque[_Waiting] = deque()
        self._unacknowledged: set[int] = set()
        self._beaten_at = 0.0

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
                for receipt in receipts:
                    self._acknowledge(receipt.handle)
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

    def _take(self, link: Link, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        self._beat(link)
        self._subscribe(link, {queue_name(domain): domain for domain in domains})
        deadline = time.monotonic() + wait
        while len(self._waiting) < limit:
            left = deadline - time.monotonic()
            said = link.drain(_SOON if self._waiting else left)
            if not said and (self._waiting or time.monotonic() >= deadline):
                break
        return [self._hand_out() for _ in range(min(limit, len(self._waiting)))]

    def _hand_out(self) -> Receipt:
        _, domain, message = self._waiting.popleft()
        self._unacknowledged.add(message.delivery_tag)
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        content_type = message.properties.get("content_type", "")
        handle = Handle(self._links, message.delivery_tag)
        return read_receipt(domain, body, content_type, handle)

    def _subscribe(self, link: Link, wanted: dict[str, str]) -> None:
        for queue in self._consumers.keys() - wanted.keys():
            link.channel.basic_cancel(self._consumers.pop(queue))
        for one in [one for one in self._waiting if one.queue not in wanted]:
            self._waiting.remove(one)
            link.channel.basic_reject(one.message.delivery_tag, requeue=True)
        for queue in wanted.keys() - self._consumers.keys():
            self._consume(link, queue, wanted[queue])

    def _consume(self, link: Link, queue: str, domain: str) -> None:
        link.declare(domain)
        self._consumers[queue] = link.channel.basic_consume(
            queue,
            callback=functools.partial(self._on_message, queue, domain),
            on_cancel=functools.partial(self._on_cancel, link, queue),
        )

    def _on_message(self, queue: str, domain: str, message: Any) -> None:
        self._waiting.append(_Waiting(queue, domain, message))

    def _on_cancel(self, link: Link, queue: str, _tag: str) -> None:
        """Note that the queue was deleted: it is declared anew when next asked for."""
        self._consumers.pop(queue, None)
        link.forget_queues()

    def _acknowledge(self, handle: Any) -> None:
        if self._link and handle.link == self._links and handle.tag in self._unacknowledged:
            self._link.channel.basic_ack(handle.tag)
            self._unacknowledged.discard(handle.tag)

    def _beat(self, link: Link) -> None:
        if time.monotonic() - self._beaten_at > _HEARTBEAT / 3:
            link.connection.send_heartbeat()
            self._beaten_at = time.monotonic()

    def _connect(self) -> Link:
        with told(self._cluster):
            link = connect(self._cluster, timeout=self._timeout, heartbeat=_HEARTBEAT)
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
        self._unacknowledged.clear()
