"""Payloads: bytes too large for a queue, kept in a store beside it (spec F4). A reference, a port.

References come from queues and are hostile: a store fetches nothing but what it would itself have
put under that hash. A payload that was fetched for people is read, compared and shown, so their
door has limits of size and number (`PayloadReadLimit`). Workers have none.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from angzarr.errors import PayloadCorrupt, PayloadElsewhere, PayloadsBusy, PayloadTooLarge
from angzarr.runtime.text import printable

#: Characters of somebody's URI that a sentence repeats.
_LONGEST_SHOWN: Final = 300
_SHA256: Final = re.compile("[0-9a-f]{64}")


#: The encoding of sealed payloads: how they are encrypted.
SEALED_ENCODING: Final = "xaes-256-gcm"


class StorageKind(StrEnum):
    """What kind of store holds a payload, as other languages know it."""

    UNSPECIFIED = "unspecified"
    FILESYSTEM = "filesystem"
    GCS = "gcs"
    S3 = "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReference:
    """Where a payload is and what it must be: `size` in bytes, `sha256` in hexadecimal digits.

    Both are those of what lies in the store, which may be packed.
    """

    kind: StorageKind
    uri: str
    sha256: str
    size: int
    #: When the store confirmed it; None where somebody else's reference does not tell.
    stored_at: datetime | None = None
    #: The name of what it is packed or sealed by; empty: it lies there as it is.
    encoding: str = ""
    #: Its bytes and its SHA-256 once it is unpacked, of one that is packed. Of a sealed one the
    #: SHA-256 is not told: whoever guesses a body could prove it.
    unpacked_size: int = 0
    unpacked_sha256: str = ""

    @property
    def is_sealed(self) -> bool:
        """True if the payload is encrypted (see `body_sealer`)."""
        return self.encoding == SEALED_ENCODING

    @property
    def body_size(self) -> int:
        """The bytes of the payload itself, be it packed or not."""
        return self.unpacked_size if self.encoding else self.size

    @property
    def body_sha256(self) -> str:
        """The SHA-256 of the payload itself, be it packed or not; of a sealed one as it lies."""
        return self.unpacked_sha256 if self.encoding and not self.is_sealed else self.sha256

    def __str__(self) -> str:
        place = printable(self.uri[:_LONGEST_SHOWN]) if self.uri else "its message"
        return f"{place} ({self.size} bytes)"


class PayloadStore(Protocol):
    """Where payloads lie, each under its SHA-256; safe from any thread and across fork.

    Both verbs raise PayloadStoreUnavailable while the store is away.
    """

    def put(self, payload: bytes, /) -> PayloadReference:
        """Return the reference once *payload* is durable there.

        Putting the same again is harmless, and makes it young again: what deletes old payloads
        must not take one that a new letter refers to.
        """

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload, of the size and SHA-256 that *reference* names.

        Raises PayloadGone where it is not in this store, PayloadCorrupt where it is another.
        """

    def close(self) -> None:
        """Close connections; safe to call twice."""


def sha256_of(payload: bytes) -> str:
    """The name of *payload*."""
    return hashlib.sha256(payload).hexdigest()


def check_place(reference: PayloadReference, uri: str, store: object) -> None:
    """Raise PayloadElsewhere unless *reference* lies where *store* puts it, at *uri*."""
    if reference.uri != uri or not _SHA256.fullmatch(reference.sha256):
        msg = f"the body lies at {reference}, which is not in the payload store {store}"
        raise PayloadElsewhere(msg)


def check_size(reference: PayloadReference, size: int) -> None:
    """Raise PayloadCorrupt unless what was found has *reference*'s size; asked before reading."""
    if size != reference.size:
        msg = f"the payload at {reference} is corrupt: it has {size} bytes"
        raise PayloadCorrupt(msg)


def verified(reference: PayloadReference, payload: bytes) -> bytes:
    """*payload* if it is what *reference* names; raises PayloadCorrupt."""
    check_size(reference, len(payload))
    if sha256_of(payload) != reference.sha256:
        msg = f"the payload at {reference} is corrupt: its SHA-256 is another"
        raise PayloadCorrupt(msg)
    return payload


#: Requests of one process that have payloads in hand.
AT_ONCE: Final = 4


class _Turn:
    """One request; it holds a place from its first payload until it is over."""

    def __init__(self) -> None:
        self._places: threading.Semaphore | None = None

    def take(self, places: threading.Semaphore) -> None:
        if self._places is places:
            return
        if not places.acquire(blocking=False):
            msg = "too many payloads are open here at once: ask again in some seconds"
            raise PayloadsBusy(msg)
        self._places = places

    def end(self) -> None:
        if self._places is not None:
            self._places.release()
            self._places = None


_turn: ContextVar[_Turn | None] = ContextVar("_turn", default=None)


@contextmanager
def turn() -> Iterator[None]:
    """Count all payloads that are opened in the block, in its threads too, as one at a time."""
    mine = _Turn()
    before = _turn.set(mine)
    try:
        yield
    finally:
        _turn.reset(before)
        mine.end()


class PayloadReadLimit:
    """A payload store for people: *store*, with payloads of *most* bytes at most."""

    def __init__(self, store: PayloadStore, most: int, at_once: int = AT_ONCE) -> None:
        self._store = store
        self._most = most
        self._places = threading.Semaphore(at_once)

    def __str__(self) -> str:
        return str(self._store)

    def put(self, payload: bytes, /) -> PayloadReference:
        """Put a payload (see PayloadStore)."""
        return self._store.put(payload)

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore); what its reference says of its size is checked.

        Raises PayloadTooLarge, whose caller says who takes it all the same, and PayloadsBusy where
        so many requests have payloads in hand.
        """
        if max(reference.size, reference.body_size) > self._most:
            msg = (
                f"its body lies at {reference}, and no more than {self._most} bytes are opened for"
                " people (dlq.payloads.largest_opened)"
            )
            raise PayloadTooLarge(msg)
        if (request := _turn.get()) is not None:
            request.take(self._places)
            return self._store.fetch(reference)
        with turn():
            return self.fetch(reference)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
