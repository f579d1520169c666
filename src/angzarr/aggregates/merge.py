"""Merge: what becomes of a command whose expected sequence is stale (spec C2). Pure."""

from __future__ import annotations

from enum import Enum, IntEnum


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


class Ruling(Enum):
    """What is done with a command."""

    RUN = "run"
    #: Refused; a command built from the current book may succeed (FAILED_PRECONDITION).
    STALE = "stale"
    #: Refused for good (ABORTED).
    ABORT = "abort"
    #: Refused for good (ABORTED), and a dead letter.
    REVIEW = "review"


_ON_CONFLICT = {
    MergeStrategy.COMMUTATIVE: Ruling.STALE,
    MergeStrategy.STRICT: Ruling.ABORT,
    MergeStrategy.AGGREGATE_HANDLES: Ruling.RUN,
    MergeStrategy.MANUAL: Ruling.REVIEW,
}


def ruling(strategy: MergeStrategy, expected: int | None, actual: int) -> Ruling:
    """Return what is done with a command that expects *expected* where the book is at *actual*.

    A command that expects nothing is decided on whatever is there.
    """
    if expected is None or expected == actual:
        return Ruling.RUN
    return _ON_CONFLICT[strategy]
