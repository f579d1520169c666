"""Payloads in a local folder: one file each, whole or not there, on disk before it counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from angzarr.adapters.files import whole_files
from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import (
    FoundPayload,
    Namer,
    PayloadReference,
    StorageKind,
    check_size,
    is_below,
    is_name,
    name_in,
    name_of,
    new_name,
    sha256_in,
    verified,
)


class FilePayloadStore:
    """Payloads as ``<folder>/ab/cdef…``, by their SHA-256; files are 0600, folders 0700.

    The analysis worker must reach the same folder under the same path.
    """

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder = folder.absolute()
        self._root = f"{self._folder.as_uri().rstrip('/')}/"
        self._clock = clock or SystemClock()

    def __str__(self) -> str:
        return self._folder.as_uri()

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Write *payload*, which replaces what is there under its name (see PayloadStore)."""
        chosen = new_name(payload, self._root, name, self)
        path = self._folder / chosen
        with self._told("written"):
            whole_files.make_folder(path.parent)
            with whole_files.opened(path.parent) as folder:
                whole_files.write_whole(folder, path.name, payload)
                os.fsync(folder)
        return PayloadReference(
            kind=StorageKind.FILESYSTEM,
            uri=path.as_uri(),
            sha256=sha256_in(chosen),
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Read the payload (see PayloadStore); a missing folder is not a missing payload."""
        path = self._folder / name_of(reference, self._root, self)
        with self._told("read"):
            try:
                with path.open("rb") as file:
                    check_size(reference, os.fstat(file.fileno()).st_size)
                    found = file.read(reference.size + 1)
            except FileNotFoundError as error:
                self._folder.stat()
                msg = f"the payload at {reference} is gone"
                raise PayloadGone(msg) from error
        return verified(reference, found)

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of this store (see PayloadStore)."""
        return is_below(uri, self._root)

    def delete(self, uri: str, /) -> None:
        """Delete the file (see PayloadStore); a missing folder is not a deleted payload."""
        path = self._folder / name_in(uri, self._root, self)
        with self._told("written"):
            try:
                path.unlink()
            except FileNotFoundError:
                self._folder.stat()

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads in the folder (see PayloadStore)."""
        with self._told("read"):
            shards = sorted(whole_files.names_in(self._folder))
        for shard in shards:
            with self._told("read"):
                found = [one for name in self._names_in(shard) for one in self._found(name)]
            yield from found

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _names_in(self, shard: str) -> list[str]:
        """The names of the payloads in *shard*, which may be no folder at all."""
        try:
            files = whole_files.names_in(self._folder / shard)
        except NotADirectoryError:
            return []
        return [name for file in files if is_name(name := f"{shard}/{file}")]

    def _found(self, name: str) -> list[FoundPayload]:
        """The payload called *name*, unless it is gone by now."""
        try:
            told = (self._folder / name).lstat()
        except FileNotFoundError:
            return []
        at = datetime.fromtimestamp(told.st_mtime, UTC)
        return [FoundPayload(self._root + name, told.st_size, at)]

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = error.strerror or type(error).__name__
            msg = f"the payload folder {self._folder} cannot be {verb}: {said}"
            raise PayloadStoreUnavailable(msg) from error
