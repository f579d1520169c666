"""Spooled letters: those that wait on a disk until a dead-letter queue takes them (spec L4)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from angzarr.dead_letters.queue import Outgoing


class Spooled(NamedTuple):
    """A letter in the spool; `size` is that of its file, in bytes."""

    name: str
    at: datetime
    size: int
    letter_id: str


class Aside(StrEnum):
    """Where a letter goes that would keep the others waiting; a person looks at it."""

    REFUSED = "refused"  # no queue will ever take it
    DAMAGED = "damaged"  # what is on the disk is no letter, or not the one that was written


class SpoolTally(NamedTuple):
    """How much a spool holds; `size` counts what was set aside, too."""

    letters: int
    size: int
    oldest_at: datetime | None
    refused: int
    damaged: int


class SpooledLetters(Protocol):
    """The way out of a spool. Every verb raises DeadLetterQueueUnavailable if the disk fails."""

    def waiting(self) -> list[Spooled]:
        """Return what waits, oldest first; nothing where there is no spool yet."""

    def read(self, letter: Spooled, /) -> Outgoing | None:
        """Return what was spooled, None if it was taken away; raises DecodeError if damaged."""

    def done(self, letters: Sequence[Spooled], /) -> None:
        """Delete these; one that is gone already is ignored."""

    def set_aside(self, letter: Spooled, aside: Aside, /) -> None:
        """Keep this one where it keeps no other from being forwarded."""

    def alone(self) -> AbstractContextManager[bool]:
        """Say whether this process is the only one to forward from this spool, for a while.

        Never waits. It ends with the process, however that ends.
        """
