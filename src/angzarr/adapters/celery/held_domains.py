"""HeldDomains: domains that are held back for a poison wave, as all processes of a worker see them.

A child finds out, its parent stops consuming: only from queues that serve that one domain
(decisions 27). Elsewhere the child postpones what comes, and so it does with what was prefetched.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from angzarr.delivery.handlers import Handlers

_log = logging.getLogger("angzarr.worker")

#: Seconds since 1970 until when a domain is held back, for each domain.
_UNTIL = struct.Struct("d")
#: Domains of one app that are told apart; others are postponed only.
_MOST = 512


class HeldDomains:
    """One shared page, made before the pool forks. A torn or lost write costs one wait, no more."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _MOST * _UNTIL.size)
        self._places: dict[str, int] = {}

    def begin(self, domains: list[str]) -> None:
        """Give each of *domains* its place; called before the pool forks."""
        self._places = {name: at for at, name in enumerate(sorted(domains)[:_MOST])}
        for name in self._places:
            self._write(name, 0.0)

    def hold(self, domain: str, until: datetime) -> None:
        """Let every process of this worker know that *domain* is held back until then."""
        if domain in self._places:
            self._write(domain, until.timestamp())

    def now(self) -> set[str]:
        """Return the domains that are held back."""
        at = time.time()
        return {name for name in self._places if self._read(name) > at}

    def _write(self, domain: str, until: float) -> None:
        _UNTIL.pack_into(self._page, self._places[domain] * _UNTIL.size, until)

    def _read(self, domain: str) -> float:
        (until,) = _UNTIL.unpack_from(self._page, self._places[domain] * _UNTIL.size)
        return float(until)


class Valve:
    """Stops and resumes the consuming of queues as domains are held back; in the parent's loop."""

    def __init__(self, consumer: Any, held: HeldDomains) -> None:
        self._consumer = consumer
        self._held = held
        self._closed: set[str] = set()

    def turn(self) -> None:
        """Compare what is consumed with what is held back; called about once a second."""
        held = self._held.now()
        if not held and not self._closed:
            return
        app = self._consumer.app
        domains = domains_of_queues(app.handlers, str(app.conf.task_default_queue))
        to_close = {queue for queue, served in domains.items() if served <= held}
        for queue in sorted(to_close - self._closed):
            self._close(queue)
        for queue in sorted(self._closed - to_close):
            self._open(queue)

    def _close(self, queue: str) -> None:
        if not self._consumer.task_consumer.consuming_from(queue):
            return  # an operator stopped it, or this worker never consumed it: not ours to resume
        _log.warning("consuming_stopped: of queue %s, whose domain is held back", queue)
        self._consumer.cancel_task_queue(queue)
        self._closed.add(queue)

    def _open(self, queue: str) -> None:
        _log.warning("consuming_resumed: of queue %s", queue)
        self._consumer.add_task_queue(queue)
        self._closed.discard(queue)


def domains_of_queues(handlers: Handlers, default_queue: str) -> Mapping[str, set[str]]:
    """Return the domains that each queue serves, those only whose handlers all have a domain."""
    served: dict[str, set[str]] = {}
    mixed: set[str] = set()
    for handler in handlers:
        if handler.name.startswith("celery."):
            continue
        queue = handler.queue or default_queue
        if handler.domain is None:
            mixed.add(queue)
        else:
            served.setdefault(queue, set()).add(handler.domain)
    return {queue: names for queue, names in served.items() if queue not in mixed}
