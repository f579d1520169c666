"""What both sides of a pair do with dead letters: put some and have them confirmed, take some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from angzarr.dead_letters.queue import DeadLetterQueue

#: A letter as a dict, as `json.loads` makes it of the one that angzarr writes.
Document = Mapping[str, Any]


class BareClient(Protocol):
    """The client of one backend, used by hand; *name* is a queue's, topic's or subscription's."""

    def put(self, name: str, documents: Sequence[Document]) -> None:
        """Write *documents* as JSON; return once the backend has confirmed every one."""

    def take(self, name: str, limit: int) -> int:
        """Take up to *limit* messages, read their JSON, acknowledge them; return how many."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backend with both sides at it."""

    #: What it is and its version, for the report.
    told: str
    ours: Callable[[], DeadLetterQueue]
    theirs: Callable[[], BareClient]
    #: What configures an app so that its letters are there, and come back soon from the dead.
    environment: Mapping[str, str]
    #: Letters that one run puts, with one in flight and with a hundred.
    to_put: Mapping[int, int] = field(default_factory=lambda: {1: 300, 100: 5000})
    #: Letters that one run takes.
    to_take: Mapping[int, int] = field(default_factory=lambda: {1: 300, 100: 5000})
