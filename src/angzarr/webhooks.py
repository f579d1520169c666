"""Posting: what came of sending one message to an address of somebody else. A value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PostResult:
    """What came of sending one message, such as an alert."""

    #: Whether it arrived; else `problem` says why not, without a secret.
    arrived: bool = False
    problem: str = ""
    #: Whether the receiver is ill, as opposed to refusing this one.
    ill: bool = False
    #: The receiver wants no messages any more (410).
    gone: bool = False
    #: How long it asked to be left alone.
    retry_after: timedelta | None = None
    took: timedelta = timedelta(0)
    #: The HTTP status; None where there was no answer, or where it is no HTTP.
    status: int | None = None
