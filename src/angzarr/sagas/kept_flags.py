"""Flags as they are kept beside the book of whoever answered them (spec C5). Pure.

A delivery that comes again repeats them: an event that says that nobody compensates may be out.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from angzarr.aggregates.book import Decision
from angzarr.sagas.flags import Flags
from angzarr.sagas.log import Status


class KeptFlags(NamedTuple):
    """What is done instead of compensating, and how that ends."""

    flags: Flags
    status: Status


def written_flags(cause: str, kept: KeptFlags) -> Decision:
    """Return the decision that keeps *kept* as the answer to *cause*; it appends nothing."""
    return Decision(cause=cause, notes={"flags": asdict(kept.flags), "status": kept.status.value})


def read_flags(decision: Decision) -> KeptFlags:
    """Read what `written_flags` wrote."""
    return KeptFlags(Flags(**decision.notes["flags"]), Status(decision.notes["status"]))
