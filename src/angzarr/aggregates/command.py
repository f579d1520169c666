"""Command: what is asked of an aggregate, and where that came from (spec C4).

Merge: what becomes of a command whose expected sequence is stale (spec C2). Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from angzarr.aggregates.book import Address
from angzarr.events import headers as names
from angzarr.events.event import Event, digest
from angzarr.events.headers import MAX_SEQUENCE, NoNumber, read_number
from angzarr.resilience.idempotency import key_part


class MergeStrategy(IntEnum):
    """What a command handler wants done about a stale expectation; the numbers are the wire's."""

    #: Refused with the current book, and retried with a command built from it.
    COMMUTATIVE = 0
    #: Refused for good.
    STRICT = 1
    #: Not checked: the aggregate decides.
    AGGREGATE_HANDLES = 2
    #: Refused for good, and a person decides: a dead letter.
    MANUAL = 3


class MergeRuling(Enum):
    """What is done with a command."""

    RUN = "run"
    #: Refused; a command built from the current book may succeed (FAILED_PRECONDITION).
    STALE = "stale"
    #: Refused for good (ABORTED).
    ABORT = "abort"
    #: Refused for good (ABORTED), and a dead letter.
    REVIEW = "review"


_ON_CONFLICT = {
    MergeStrategy.COMMUTATIVE: MergeRuling.STALE,
    MergeStrategy.STRICT: MergeRuling.ABORT,
    MergeStrategy.AGGREGATE_HANDLES: MergeRuling.RUN,
    MergeStrategy.MANUAL: MergeRuling.REVIEW,
}


def merge_ruling(strategy: MergeStrategy, expected: int | None, actual: int) -> MergeRuling:
    """Return what is done with a command that expects *expected* where the book is at *actual*.

    A command that expects nothing is decided on whatever is there.
    """
    if expected is None or expected == actual:
        return MergeRuling.RUN
    return _ON_CONFLICT[strategy]


_IDS: Final = uuid.UUID("0d4c9a1e-8f0a-5d0a-9a63-6f1b7d1f2c55")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The saga that sent a command, and the event that made it do so."""

    saga: str
    source: Address
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. `event` says what it is and to whom it goes; its sequence is what it expects."""

    event: Event
    origin: Origin | None = None
    #: What its sender wants done if it is stale; what the handler declares comes first.
    merge: MergeStrategy | None = None

    @property
    def id(self) -> str:
        """Its id: the same command sent twice is carried out once."""
        return self.event.id

    @property
    def address(self) -> Address:
        """The aggregate that it goes to."""
        event = self.event
        return Address(event.domain or "", event.root or "", event.edition or "")

    @property
    def digest(self) -> str:
        """Its type and its data: another command under the same id has another one."""
        return f"{self.event.type}\n{digest(self.event.data)}"

    @property
    def expected(self) -> int | None:
        """Where the book is believed to be; None: wherever it is."""
        return self.event.sequence


def check_expected(expected: object) -> int | None:
    """Return where a book is believed to be; raises ValueError for what can be no sequence.

    A header that cannot be read counts as absent: a stale command would be carried out.
    """
    if expected is None:
        return None
    if type(expected) is int and 0 <= expected <= MAX_SEQUENCE:
        return expected
    msg = f"expected is the sequence that a book is at, 0 for an empty one, not {expected!r:.50}"
    raise ValueError(msg)


def task_of(domain: str, command_type: str) -> str:
    """Return the task that carries out commands of a type; whoever sends one need not import it."""
    return f"command.{domain}.{command_type}"


def is_command(task: str) -> bool:
    """Tell whether *task* carries out commands."""
    return task.startswith("command.")


def id_after(cause: str, *parts: object) -> str:
    """Return the id of what follows from *cause*: the same parts give the same id."""
    named = "\x00".join((key_part(cause), *map(str, parts)))
    return str(uuid.uuid5(_IDS, named.encode(errors="backslashreplace").decode()))


def origin_headers(origin: Origin | None) -> dict[str, Any]:
    """Return the headers that carry *origin*."""
    if origin is None:
        return {}
    told = {
        names.SAGA: origin.saga,
        names.SOURCE_DOMAIN: origin.source.domain,
        names.SOURCE_ROOT: origin.source.root,
        names.SOURCE_SEQUENCE: origin.sequence,
    }
    return told | ({names.SOURCE_EDITION: origin.source.edition} if origin.source.edition else {})


def origin_of(headers: Mapping[str, Any]) -> Origin | None:
    """Read an origin; None where there is none, or not all of it."""
    saga, domain, root = (
        text if isinstance(text := headers.get(name), str) else ""
        for name in (names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT)
    )
    sequence = read_number(headers.get(names.SOURCE_SEQUENCE), MAX_SEQUENCE)
    if not (saga and domain and root) or isinstance(sequence, NoNumber):
        return None
    edition = headers.get(names.SOURCE_EDITION)
    source = Address(domain, root, edition if isinstance(edition, str) else "")
    return Origin(saga=saga, source=source, sequence=sequence)
