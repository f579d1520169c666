"""Payloads: bytes too large for a queue, kept in a store beside it (spec F4). A reference, a port.

References come from queues and are hostile: a store fetches nothing but what it would itself have
put under that hash. A payload that was fetched for people is read, compared and shown, so their
door has limits of size and number (`PayloadReadLimit`). Workers have none.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from angzarr.errors import PayloadCorrupt, PayloadElsewhere, PayloadsBusy, PayloadTooLarge
from angzarr.runtime.text import printable

#: Characters of somebody's URI that a sentence repeats.
_LONGEST_SHOWN: Final = 300
#: The name of a payload below its store: its SHA-256, and its generation where it has one.
_NAME: Final = re.compile("([0-9a-f]{2})/([0-9a-f]{62})(?:-[0-9a-f]{16})?")

#: Says under which URI a payload is to be written, before it is: called with the URI of its
#: SHA-256 and with its size. It answers that URI, with a generation behind it or without.
Namer: TypeAlias = Callable[[str, int], str]


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


class FoundPayload(NamedTuple):
    """One payload that lies in a store: `size` in bytes; `at` is None where it does not tell."""

    uri: str
    size: int
    at: datetime | None


class PayloadStore(Protocol):
    """Where payloads lie, each under its SHA-256; safe from any thread and across fork.

    All verbs raise PayloadStoreUnavailable while the store is away.
    """

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Return the reference once *payload* is durable there.

        *name* is called before anything is written; what it raises is raised. Putting the same
        again is harmless, and makes it young again: what deletes old payloads must not take one
        that a new letter refers to.
        """

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload, of the size and SHA-256 that *reference* names.

        Raises PayloadGone where it is not in this store, PayloadCorrupt where it is another.
        """

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is where this store could have put a payload; asks no server."""

    def delete(self, uri: str, /) -> None:
        """Delete the payload at *uri*; one that is gone already counts as deleted.

        Raises PayloadElsewhere, having deleted nothing, for what is no payload of this store.
        """

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads that lie there, in any order, and nothing else that does.

        One that is put or deleted meanwhile may be among them or not.
        """

    def close(self) -> None:
        """Close connections; safe to call twice."""


def sha256_of(payload: bytes) -> str:
    """The name of *payload*."""
    return hashlib.sha256(payload).hexdigest()


def plain_name(sha256: str) -> str:
    """The name, below its store, of a payload without a generation."""
    return f"{sha256[:2]}/{sha256[2:]}"


def name_in(uri: str, root: str, store: object) -> str:
    """The name of the payload at *uri*, below *root*; raises PayloadElsewhere for any other URI."""
    if not is_below(uri, root):
        msg = f"{printable(uri[:_LONGEST_SHOWN])} is no payload of the payload store {store}"
        raise PayloadElsewhere(msg)
    return uri[len(root) :]


def is_name(text: str) -> bool:
    """True if *text* is the name of a payload below its store."""
    return _NAME.fullmatch(text) is not None


def is_below(uri: str, root: str) -> bool:
    """True if *uri* is that of a payload below *root*."""
    return uri.startswith(root) and is_name(uri[len(root) :])


def new_name(payload: bytes, root: str, namer: Namer | None, store: object) -> str:
    """The name, below *root*, under which *payload* is to be written."""
    name = plain_name(sha256_of(payload))
    return name if namer is None else name_in(namer(root + name, len(payload)), root, store)


def sha256_in(name: str) -> str:
    """The SHA-256 of the payload called *name*."""
    return name[:2] + name[3:65]


def name_of(reference: PayloadReference, root: str, store: object) -> str:
    """The name that *reference* has below *root*.

    Raises PayloadElsewhere unless *store* would put such a payload there.
    """
    name = reference.uri[len(root) :]
    if not is_below(reference.uri, root) or sha256_in(name) != reference.sha256:
        msg = f"the body lies at {reference}, which is not in the payload store {store}"
        raise PayloadElsewhere(msg)
    return name


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

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Put a payload (see PayloadStore)."""
        return self._store.put(payload, name)

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

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of the store (see PayloadStore)."""
        return self._store.is_here(uri)

    def delete(self, uri: str, /) -> None:
        """Delete the payload at *uri* (see PayloadStore)."""
        self._store.delete(uri)

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads (see PayloadStore)."""
        return self._store.find_all()

    def close(self) -> None:
        """Close the store."""
        self._store.close()
