"""The fleet: which workers run at this moment, and which releases of the user's code they run.

A worker that registered is a member while its owner lease runs: renewals cost
nothing more for it, and a killed worker is gone when its lease is. A release is remembered long
after its last worker, so that it can be told which of two came later: by when each was first seen,
never by its name. What the register does not show is unknown: a release's own word does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

#: How long a release is remembered after a worker last ran it: longer than letters are kept.
RELEASE_LIFE: Final = timedelta(days=90)

#: How often a worker says again what it is: so soon a register that lost it knows it again.
SAID_AGAIN: Final = timedelta(minutes=1)
#: How long what a worker said is kept after it last said it. A living one says it much sooner.
SAID_LIFE: Final = timedelta(minutes=10)

#: What reading anything else than a member may raise.
_ODD: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker, as it says of itself."""

    #: Its process tree, as claims name it.
    owner: str
    host: str
    #: The parent's process id on that host.
    pid: int
    #: The version of the user's code, as its letters have it; empty where nobody said it.
    release: str = ""
    #: Names of the handlers and plain tasks that it can run, sorted.
    handlers: tuple[str, ...] = ()
    #: Queues that it consumes, sorted.
    queues: tuple[str, ...] = ()
    #: Celery's short name of its pool.
    pool: str = ""
    #: When it began, by its host's clock.
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRelease:
    """A version of the user's code that workers ran. Times are those of the store."""

    name: str
    first_seen_at: datetime
    #: When a worker last said that it runs it; a running one is seen once a minute.
    last_seen_at: datetime


class Fleet(Protocol):
    """The register of a fleet. Every verb raises StoreUnavailable, and may be sent twice."""

    def register(self, member: Member, /) -> None:
        """Keep what *member* says, in place of what its owner said before; see its release now.

        Forgets what others said long ago, and releases that have not run for long.
        """

    def members(self) -> Sequence[Member]:
        """All whose owner lease runs, by owner. One that cannot be read is left out."""

    def releases(self) -> Sequence[FleetRelease]:
        """All releases that are remembered, those that were seen first before others."""


def running_releases(members: Iterable[Member], handler: str | None = None) -> frozenset[str]:
    """The releases of *members*, or of those that can run *handler*.

    An empty name stands for workers that do not say theirs.
    """
    return frozenset(
        member.release for member in members if handler is None or handler in member.handlers
    )


def newer_releases(
    failed: str, running: Iterable[str], releases: Iterable[FleetRelease]
) -> frozenset[str] | None:
    """Those of *running* that were first seen after the release that *failed*.

    None: unknown, since the letter names no release, or one that no worker was seen with. What
    runs and was never seen, or has no name, is not newer: compare the answer with *running* to
    know whether others still run. A release that is rolled back to is not newer either.
    """
    first_seen = {release.name: release.first_seen_at for release in releases if release.name}
    since = first_seen.get(failed)
    if since is None:
        return None
    return frozenset(name for name in running if first_seen.get(name, since) > since)


def told_member(member: Member) -> str:
    """*member* as stores keep it: JSON in ASCII."""
    return json.dumps(asdict(member) | {"started_at": member.started_at.isoformat()})


def read_member(owner: str, text: str) -> Member | None:
    """The member that *owner* said it is, None if *text* is nothing of the kind.

    Stores are written by others too. What a newer angzarr says besides is passed over.
    """
    try:
        said: dict[str, Any] = json.loads(text)
        member = Member(
            owner=_text(said["owner"]),
            host=_text(said["host"]),
            pid=int(said["pid"]),
            release=_text(said["release"]),
            handlers=tuple(map(_text, said["handlers"])),
            queues=tuple(map(_text, said["queues"])),
            pool=_text(said["pool"]),
            started_at=datetime.fromisoformat(said["started_at"]).astimezone(UTC),
        )
    except _ODD:
        return None
    return member if member.owner == owner else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
