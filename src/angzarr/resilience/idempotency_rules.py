"""What a claim is answered and what an ending leaves behind: pure, the same for every store.

Stores that keep the record on a server run these rules there (Redis in Lua) or around a locked
row (SQL); the contract suite compares them all with the memory store, which runs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from angzarr.resilience.idempotency import (
    FIRST,
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    ClaimAnswer,
    Claimed,
    Complete,
    Conflict,
    Ending,
    Fail,
    InProgress,
    Position,
    Release,
    SupersededClaim,
    Wait,
)


class ClaimStatus(StrEnum):
    """What a record says; its value is what stores write."""

    PENDING = "pending"
    WAITING = "waiting"
    RELEASED = "released"
    COMPLETED = "completed"
    FAILED = "failed"


#: Where a record still has the last words of a run.
_OPEN = (ClaimStatus.PENDING, ClaimStatus.RELEASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of one key. `token` is the delivery that holds it, or the last that did."""

    status: ClaimStatus
    token: str
    owner: str
    position: Position = FIRST
    #: Claims that were not settled, the present one included.
    starts: int = 1
    #: Digest of the body at `position.replay`; empty: not compared.
    fingerprint: str = ""
    #: JSON text: the result of a completed record, the error of a failed one, and the last words of
    #: an earlier run in one that is pending or released.
    result: str | None = None


def answer_of(record: Record | None, claim: Claim, alive: Callable[[str], bool]) -> ClaimAnswer:
    """Answer *claim*; `alive` is asked for the record's owner only where the answer hangs on it."""
    if record is None:
        return Claimed(starts=starts_of(claim))
    if _another_body(record, claim):
        return Conflict()
    if record.status is ClaimStatus.COMPLETED:
        completed = AlreadyCompleted(result=record.result)
        return Claimed(starts=starts_of(claim)) if claim.anew else completed
    if record.status is ClaimStatus.FAILED:
        passes = claim.position.replay > record.position.replay
        failed = AlreadyFailed(error=record.result or "{}")
        return Claimed(starts=starts_of(claim)) if passes else failed
    return _answer_of_open(record, claim, alive)


def _answer_of_open(record: Record, claim: Claim, alive: Callable[[str], bool]) -> ClaimAnswer:
    if claim.position < record.position:
        return SupersededClaim()
    same = record.status is ClaimStatus.PENDING and record.token == claim.token
    if record.status is ClaimStatus.PENDING and not same and alive(record.owner):
        return InProgress()
    starts = record.starts if same else record.starts + starts_of(claim)
    return Claimed(starts=starts, last_words=_last_words(record) or "")


def _last_words(record: Record) -> str | None:
    return record.result if record.status in _OPEN else None


def starts_of(claim: Claim) -> int:
    """What *claim* adds to the starts of a record."""
    return 1 if claim.counted else 0


def _another_body(record: Record, claim: Claim) -> bool:
    """Compare within one replay number: an edited replay has a body of its own.

    Fingerprints that were made by two keys, or by one and none, tell nothing of each other.
    """
    given, known = claim.fingerprint, record.fingerprint
    return (
        claim.position.replay == record.position.replay
        and "" not in (given, known)
        and given != known
        and given.rpartition(":")[0] == known.rpartition(":")[0]
    )


def held_by(claim: Claim, starts: int, record: Record | None) -> Record:
    """The pending record that a granted *claim* leaves in place of *record*."""
    fingerprint = claim.fingerprint
    if not fingerprint and record and record.position.replay == claim.position.replay:
        fingerprint = record.fingerprint
    return Record(
        status=ClaimStatus.PENDING,
        token=claim.token,
        owner=claim.owner,
        position=claim.position,
        starts=starts,
        fingerprint=fingerprint,
        result=_last_words(record) if record else None,
    )


def holds(record: Record | None, token: str) -> bool:
    """True if the delivery with *token* holds the record."""
    return record is not None and record.status is ClaimStatus.PENDING and record.token == token


def was_ended(record: Record | None, token: str, ending: Ending) -> bool:
    """True if the delivery with *token* ended its claim in this way already."""
    return record is not None and record.token == token and record.status is status_of(ending)


def status_of(ending: Ending) -> ClaimStatus:
    """The status that *ending* leaves."""
    match ending:
        case Complete():
            return ClaimStatus.COMPLETED
        case Fail():
            return ClaimStatus.FAILED
        case Wait():
            return ClaimStatus.WAITING
        case Release():
            return ClaimStatus.RELEASED
    assert_never(ending)


def ended(record: Record, ending: Ending) -> Record:
    """What *ending* leaves of a pending *record*."""
    after = replace(record, status=status_of(ending))
    match ending:
        case Complete(result=kept) | Fail(error=kept):
            return replace(after, result=kept)
        case Wait(position=position):
            return replace(after, position=max(position, record.position), starts=0, result=None)
        case Release(counted=counted, was_counted=was, last_words=last):
            starts = record.starts + int(counted) - int(was)
            return replace(after, starts=starts, result=last or record.result)
    assert_never(ending)


def life_after(ending: Ending, life: timedelta) -> timedelta:
    """How long the record is kept from now; *life* is the store's for open records."""
    match ending:
        case Complete(life=kept) | Fail(life=kept):
            return kept
        case Wait(delay=delay, life=kept):
            return delay + kept
        case Release():
            return life
    assert_never(ending)
