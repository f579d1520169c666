"""PackedStore: payloads lie packed in a store where that pays, and are unpacked within a bound.

A reference names what lies in the store: its SHA-256 and `size` are those of the packed bytes, and
are verified before anything is unpacked. A sealed body was packed before it was sealed: it is put
and fetched as it is, and `BodySealer` opens it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from angzarr.errors import PayloadCorrupt
from angzarr.payloads.store import (
    FoundPayload,
    Namer,
    PayloadReference,
    PayloadStore,
    sha256_of,
)

#: The share of its size that a payload must lose, or it is kept as it is.
WORTH: Final = 0.1
#: How a sealed body begins, which no packing makes smaller.
SEALED_START: Final = b"angzarr-sealed/"


class UnpackedTooLarge(ValueError):
    """What was packed is larger than its reader takes; `most` is how much it takes, in bytes."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it unpacks to more than {most} bytes")
        self.most = most


class Packing(Protocol):
    """Makes payloads smaller and gives them back. Pure."""

    @property
    def name(self) -> str:
        """The name by which references say that a payload is packed so."""

    def pack(self, payload: bytes, /) -> bytes:
        """*payload*, packed; the same bytes for the same payload."""

    def unpack(self, packed: bytes, most: int, /) -> bytes:
        """What was packed, of *most* bytes at most.

        Raises UnpackedTooLarge without having unpacked more, and ValueError for what was not
        packed so.
        """


class PackedStore:
    """A payload store: *store*, whose payloads are packed by *packing* as they are put.

    None: they are put as they are. *known* are the packings of what is fetched, by name. No payload
    is unpacked to more than *most* bytes; what is not packed is bounded by its reader.
    """

    def __init__(
        self,
        store: PayloadStore,
        *,
        most: int,
        packing: Packing | None = None,
        known: Mapping[str, Packing],
    ) -> None:
        self._store = store
        self._most = most
        self._packing = packing
        self._known = known

    def __str__(self) -> str:
        return str(self._store)

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Put a payload (see PayloadStore), packed if that makes it smaller by a tenth."""
        if self._packing is not None and not payload.startswith(SEALED_START):
            packed = self._packing.pack(payload)
            if is_worth_it(packed, payload):
                reference = self._store.put(packed, name)
                return replace(
                    reference,
                    encoding=self._packing.name,
                    unpacked_size=len(payload),
                    unpacked_sha256=sha256_of(payload),
                )
        return self._store.put(payload, name)

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload, unpacked (see PayloadStore).

        Raises PayloadCorrupt as well where it is too large, or packed in a way unknown here.
        """
        if not reference.encoding or reference.is_sealed:
            return self._store.fetch(reference)
        if max(reference.size, reference.body_size) > self._most:  # not even fetched
            raise too_large(reference, self._most)
        return self._unpacked(reference, self._store.fetch(reference))

    def _unpacked(self, reference: PayloadReference, found: bytes) -> bytes:
        packing = self._known.get(reference.encoding)
        if packing is None:
            msg = (
                f"the payload at {reference} is packed by {reference.encoding!r:.40}, which is not"
                f" installed here: {_cure(reference.encoding)}, then replay it"
            )
            raise PayloadCorrupt(msg)
        try:
            body = packing.unpack(found, reference.body_size)
        except UnpackedTooLarge:
            body = b""
        except ValueError as error:
            msg = f"the payload at {reference} is corrupt: it cannot be unpacked: {error}"
            raise PayloadCorrupt(msg) from error
        if len(body) != reference.unpacked_size or sha256_of(body) != reference.unpacked_sha256:
            msg = (
                f"the payload at {reference} is corrupt: it does not unpack to the"
                f" {reference.unpacked_size} bytes that its reference names"
            )
            raise PayloadCorrupt(msg)
        return body

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


def is_worth_it(packed: bytes, payload: bytes) -> bool:
    """True if *packed* is smaller than *payload* by a tenth."""
    return len(packed) <= len(payload) * (1 - WORTH)


def too_large(reference: PayloadReference, most: int) -> PayloadCorrupt:
    """The error of a payload of more than *most* bytes, of which none are read."""
    msg = (
        f"the payload at {reference} is larger than {most} bytes, of which no more are read: if"
        " yours may be larger, raise message.most_unpacked and replay it"
    )
    return PayloadCorrupt(msg)


def _cure(encoding: str) -> str:
    if encoding == "zstd":
        return "pip install 'angzarr-workers[zstd]'"
    return "update this worker"
