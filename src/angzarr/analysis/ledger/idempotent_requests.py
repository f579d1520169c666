"""Write: a change asked for under an idempotency key, remembered with its answer (spec A5).

Same key and request: same answer. The worker holds a lease; if it dies, the next one to ask
after it does the work once more: on what was chosen the first time, at the revisions seen then.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias

#: How long an answer is kept, counted from when it was given.
KEPT: Final = timedelta(hours=24)
#: How long a request may be worked on before another worker may do it.
WRITE_LEASE: Final = timedelta(seconds=60)


class WriteKey(NamedTuple):
    """Whose key it is, and the key: two callers never meet."""

    caller: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """The answer to a request."""

    status: int
    body: bytes
    #: Names in lower case.
    headers: tuple[tuple[str, str], ...] = ()


class RequestBegun(NamedTuple):
    """The request is the caller's to work on, until his lease ends."""

    #: The entries on which the previous worker chose to act.
    choice: bytes | None = None


class RequestRunning(NamedTuple):
    """Another worker is at work on it; ask again after `retry_after`."""

    retry_after: timedelta


class RequestDiffers(NamedTuple):
    """The key was used for another request."""


Found: TypeAlias = RequestBegun | RequestRunning | RequestDiffers | RecordedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """The record of one key. `token` names who works on it, or did."""

    fingerprint: str
    token: str
    #: Until when it is leased, or once it is answered, kept.
    until: datetime
    answer: RecordedAnswer | None = None
    choice: bytes | None = None


def forgotten(write: RequestRecord, now: datetime) -> bool:
    """True if *write* may be forgotten: its answer was kept long enough, or no caller came back."""
    return write.until + (timedelta(0) if write.answer else KEPT) <= now


def found(write: RequestRecord, fingerprint: str, token: str, now: datetime) -> Found:
    """The meaning of *write* for a request with *fingerprint*, of the worker *token*."""
    if is_of(write, token):
        return RequestBegun(write.choice)
    if forgotten(write, now):
        return RequestBegun()
    if write.fingerprint != fingerprint:
        return RequestDiffers()
    if write.answer is not None:
        return write.answer
    return RequestRunning(write.until - now) if write.until > now else RequestBegun(write.choice)


def begun(fingerprint: str, token: str, now: datetime, lease: timedelta) -> RequestRecord:
    """A write that *token* works on."""
    return RequestRecord(fingerprint=fingerprint, token=token, until=now + lease)


def chosen(write: RequestRecord | None, token: str, choice: bytes) -> RequestRecord | None:
    """*write* with its choice, or None where it is not *token*'s to work on."""
    return replace(write, choice=choice) if write and is_of(write, token) else None


def freed(write: RequestRecord, now: datetime) -> RequestRecord | None:
    """The rest of a write that came to nothing: its choice, free to be taken over."""
    return None if write.choice is None else replace(write, until=now)


def is_of(write: RequestRecord, token: str) -> bool:
    """True if *token* works on *write*."""
    return write.token == token and write.answer is None


def answered(
    write: RequestRecord | None, token: str, answer: RecordedAnswer, now: datetime, keep: timedelta
) -> RequestRecord | None:
    """*write* with its answer, or None where another one works on it meanwhile."""
    if write is None or not is_of(write, token):
        return None
    return replace(write, answer=answer, choice=None, until=now + keep)


class Writes(Protocol):
    """Where writes are remembered. Every verb raises LedgerUnavailable when it is away."""

    @abstractmethod
    def begin(
        self, key: WriteKey, fingerprint: str, token: str, /, *, lease: timedelta = WRITE_LEASE
    ) -> Found:
        """Take the request for *token*, or say how it stands.

        The same token asks again to renew its lease.
        """

    @abstractmethod
    def choose(self, key: WriteKey, token: str, choice: bytes, /) -> bool:
        """Remember what the request acts on, unless it is another one's by now."""

    @abstractmethod
    def finish(
        self, key: WriteKey, token: str, answer: RecordedAnswer, /, *, keep: timedelta = KEPT
    ) -> bool:
        """Remember the answer, unless the request is another one's by now."""

    @abstractmethod
    def forget(self, key: WriteKey, token: str, /) -> bool:
        """Free a request that came to nothing, unless it is another one's by now.

        Its key is free, too, unless it has a choice: part of that may be done.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""
