"""Payloads in a local folder: one file each, whole or not there, on disk before it counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from angzarr.adapters.files import whole_files
from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import (
    PayloadReference,
    StorageKind,
    check_place,
    check_size,
    sha256_of,
    verified,
)


class FilePayloadStore:
    """Payloads as ``<folder>/ab/cdef…``, by their SHA-256; files are 0600, folders 0700.

    The analysis worker must reach the same folder under the same path.
    """

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder = folder.absolute()
        self._clock = clock or SystemClock()

    def __str__(self) -> str:
        return self._folder.as_uri()

    def put(self, payload: bytes, /) -> PayloadReference:
        """Write *payload*, which replaces what is there under its name (see PayloadStore)."""
        sha256 = sha256_of(payload)
        path = self._path(sha256)
        with self._told("written"):
            whole_files.make_folder(path.parent)
            with whole_files.opened(path.parent) as folder:
                whole_files.write_whole(folder, path.name, payload)
                os.fsync(folder)
        return PayloadReference(
            kind=StorageKind.FILESYSTEM,
            uri=path.as_uri(),
            sha256=sha256,
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Read the payload (see PayloadStore); a missing folder is not a missing payload."""
        path = self._path(reference.sha256)
        check_place(reference, path.as_uri(), self)
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

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256[2:]

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = error.strerror or type(error).__name__
            msg = f"the payload folder {self._folder} cannot be {verb}: {said}"
            raise PayloadStoreUnavailable(msg) from error
