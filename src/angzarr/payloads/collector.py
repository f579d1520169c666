"""PayloadCollector: deletes bodies that nothing can need any more, and none before (spec F4).

In three steps: a body is condemned, if nothing has held it for the grace period; it is deleted in
its store; it is forgotten. A run that dies leaves condemned bodies, which the next one finishes.
Any number of runs may be under way at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple, Protocol

from angzarr.payloads.holders import PayloadHold
from angzarr.payloads.store import FoundPayload, PayloadStore

#: Bodies that are condemned at a time.
BATCH: Final = 100


class PayloadState(StrEnum):
    """Where a registered body stands."""

    HELD = "held"
    FREE = "free"
    CONDEMNED = "condemned"


class RegisteredPayload(NamedTuple):
    """A registered body, and how long it has been in its state.

    `holders` is how many hold it, `holder` one of them. A held one counts from its latest hold.
    """

    uri: str
    size: int
    state: PayloadState
    since: timedelta
    holders: int = 0
    holder: str = ""


class PayloadCount(NamedTuple):
    """How many bodies, and how many bytes they have together."""

    bodies: int = 0
    bytes: int = 0


class PayloadRegister(Protocol):
    """All registered bodies, for those who delete them; every verb raises StoreUnavailable."""

    def find(
        self, state: PayloadState, longer_than: timedelta, /, *, limit: int, skip: int = 0
    ) -> list[RegisteredPayload]:
        """Bodies that have been in *state* for longer, the longest first, behind *skip* of them."""

    def condemn(
        self, uris: Sequence[str], state: PayloadState, longer_than: timedelta, /
    ) -> list[str]:
        """Condemn those that still are in *state*, for longer; return them.

        Their holds end, and their names are never given again.
        """

    def forget(self, uris: Sequence[str], /) -> None:
        """Forget condemned bodies; others stay."""

    def known(self, uris: Sequence[str], /) -> set[str]:
        """Those of *uris* that are registered, in whatever state."""

    def holders_of(self, uri: str, /, *, limit: int = BATCH) -> set[str]:
        """Up to *limit* of those who hold the body at *uri*; none, if it is not registered."""

    def release(self, holds: Sequence[PayloadHold], /) -> None:
        """End *holds* (see PayloadHolders): a body that nothing holds any more is free."""

    def count(self) -> dict[PayloadState, PayloadCount]:
        """How many bodies are in each state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionTerms:
    """When a body may go."""

    #: How long nothing must have held it; longer than claims are kept, so that a late duplicate
    #: of its event is known as one and needs no body.
    grace: timedelta
    #: How long it may be held at most; None: as long as it takes.
    keep: timedelta | None = None

    def limits(self) -> list[tuple[PayloadState, timedelta]]:
        """Each state in which a body may go, and for how long it must have been in it."""
        limits = [(PayloadState.CONDEMNED, timedelta(0)), (PayloadState.FREE, self.grace)]
        return limits if self.keep is None else [*limits, (PayloadState.HELD, self.keep)]


@dataclass(slots=True)
class CollectionAccount:
    """What became of the bodies of one run: how many were deleted, and their bytes."""

    bodies: int = 0
    bytes: int = 0
    #: Those of them whose holds had lasted longer than `CollectionTerms.keep`.
    held_too_long: int = 0
    #: Bodies that lie in other stores than this app's; they stay.
    elsewhere: int = 0

    def add(self, one: RegisteredPayload) -> None:
        """Count one that is deleted."""
        self.bodies += 1
        self.bytes += one.size
        self.held_too_long += one.state is PayloadState.HELD


@dataclass(slots=True, kw_only=True)
class PayloadCollector:
    """Deletes from *store* what *register* says that nothing needs; for one thread."""

    register: PayloadRegister
    store: PayloadStore
    terms: CollectionTerms
    account: CollectionAccount = field(default_factory=CollectionAccount)
    #: Bodies of each state that were left alone: they come again in each answer.
    _left: dict[PayloadState, int] = field(default_factory=dict, init=False)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def due(self) -> Iterator[RegisteredPayload]:
        """Yield what would go now; nothing is changed."""
        for state, span in self.terms.limits():
            skip = 0
            while found := self.register.find(state, span, limit=BATCH, skip=skip):
                skip += len(found)
                yield from found

    def start_over(self) -> None:
        """Look at bodies again that were left alone: they may have gone meanwhile."""
        self._left.clear()

    def collect(self, limit: int | None = None) -> int:
        """Delete up to *limit* bodies that may go, or all of them; return how many.

        Raises Unavailable: what was condemned is deleted by a later run.
        """
        gone = 0
        for state, span in self.terms.limits():
            while limit is None or gone < limit:
                most = BATCH if limit is None else min(BATCH, limit - gone)
                skip = self._left.get(state, 0)
                found = self.register.find(state, span, limit=most, skip=skip)
                if not found:
                    break
                deleted = self._delete(found, state, span)
                gone += deleted
                self._left[state] = skip + len(found) - deleted
        return gone

    def _delete(
        self, found: Sequence[RegisteredPayload], state: PayloadState, span: timedelta
    ) -> int:
        """Delete those of *found* that are ours and may still go."""
        by_uri = {one.uri: one for one in found}
        deleted: list[RegisteredPayload] = []
        for uri in self.register.condemn(self._ours(found), state, span):
            self.store.delete(uri)
            self.register.forget([uri])
            deleted.append(by_uri[uri])
        for one in deleted:
            self.account.add(one)
        return len(deleted)

    def _ours(self, found: Sequence[RegisteredPayload]) -> list[str]:
        """The URIs of those of *found* that lie in this store."""
        ours = [one.uri for one in found if self.store.is_here(one.uri)]
        self.account.elsewhere += len(found) - len(ours)
        return ours


def unregistered(
    store: PayloadStore, register: PayloadRegister, before: datetime
) -> Iterator[FoundPayload]:
    """Yield what lies in *store*, was written before then, and is not registered.

    Nothing knows who needs it: an older release may have put it, or a crash may have left it.
    """
    found = (one for one in store.find_all() if one.at is not None and one.at < before)
    while batch := list(islice(found, BATCH)):
        known = register.known([one.uri for one in batch])
        yield from (one for one in batch if one.uri not in known)
