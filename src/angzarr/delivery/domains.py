"""Domains: whose a delivery is, and into whose queue its letter goes (decisions 20).

Both are the handler's, else the event's, else the queue's, else the app's own. They differ in what
an event may say: its domain is a header that any publisher writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from angzarr.dead_letters.queue import UNKNOWN_DOMAIN
from angzarr.delivery.handlers import Handler
from angzarr.errors import InvalidDomainName
from angzarr.events.event import check_domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """What an app says of domains. Safe to use from many threads."""

    #: The domains whose letters the analysis worker reads.
    read: frozenset[str] = frozenset()
    of_queue: Callable[[str], str | None] = lambda _queue: None
    #: The app's own, where nothing else names one.
    default: str = UNKNOWN_DOMAIN

    def of_delivery(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        """Return the domain by which people mean a delivery; nothing is named after it."""
        return self._first(handler, of_event if _is_valid(of_event) else None, queue)

    def of_letter(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        """Return the domain whose letter it is; an event's own counts only if it is read.

        Else the letter would wait where nobody looks, and whoever sends messages could make up
        any number of queues.
        """
        return self._first(handler, of_event if of_event in self.read else None, queue)

    def _first(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        of_handler = handler.domain if handler is not None else None
        return of_handler or of_event or self.of_queue(queue) or self.default


def _is_valid(name: str | None) -> bool:
    try:
        check_domain(name or "")
    except InvalidDomainName:
        return False
    return True
