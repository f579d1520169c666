"""Payloads on any file system that fsspec knows: Google's and Azure's buckets, SFTP, memory.

What answers is other people's code: every error of it counts as absence, and its text, which may
hold a token, is shown nowhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import fsspec

from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadStoreUnavailable
from angzarr.events.headers import time_of
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
from angzarr.runtime.processes import OncePerProcess

#: What kind of store a scheme is, for other languages.
_KINDS: Final = {"gs": StorageKind.GCS, "gcs": StorageKind.GCS, "file": StorageKind.FILESYSTEM}
#: File systems on which an object is there whole or not at all, and that have no folders.
_OBJECTS: Final = frozenset(
    {"gs", "gcs", "abfs", "abfss", "adl", "az", "oss", "ossfs", "memory", "s3"}
)
#: What file systems call the moment at which a file was written last.
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "created", "time")
#: What a file's name begins with until it is whole; a killed process may leave such a file.
_UNFINISHED: Final = ".unfinished-"


def _age_in(told: Mapping[str, Any]) -> datetime | None:
    """When a file was written that a file system tells so of; None: it does not say, or oddly."""
    for name in _TIMES:
        match told.get(name):
            case datetime() as at:
                return at.replace(tzinfo=UTC) if at.tzinfo is None else at
            case int() | float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
            case str(text):
                return time_of(text)
    return None


def check_scheme(scheme: str) -> None:
    """Raise ImportError or ValueError where fsspec has no file system for *scheme*."""
    fsspec.get_filesystem_class(scheme)


class FsspecPayloadStore:
    """Payloads as ``<scheme>://<root>/ab/cdef…``; safe from any thread and across fork.

    *options* go to the file system, e.g. a token. An object store must have its bucket; elsewhere
    folders are made, and a payload gets its name once it is whole.
    """

    def __init__(
        self,
        scheme: str,
        root: str,
        *,
        options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._scheme = scheme
        self._root = root.strip("/")
        self._clock = clock or SystemClock()
        given = {**(options or {}), "skip_instance_cache": True, "use_listings_cache": False}
        self._system = OncePerProcess[Any](lambda: fsspec.filesystem(scheme, **given))
        self._is_objects = scheme in _OBJECTS

    def __str__(self) -> str:
        return f"{self._scheme}://{self._root}/"

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Write *payload* (see PayloadStore)."""
        chosen = new_name(payload, str(self), name, self)
        path = self._path(chosen)
        with self._told("take"):
            if self._is_objects:
                self._system.get().pipe_file(path, payload)
            else:
                self._write_whole(path, payload)
        return PayloadReference(
            kind=_KINDS.get(self._scheme, StorageKind.UNSPECIFIED),
            uri=f"{self}{chosen}",
            sha256=sha256_in(chosen),
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def _write_whole(self, path: str, payload: bytes) -> None:
        """Write beside *path*, then move it there, which replaces what is there."""
        system, folder = self._system.get(), path.rpartition("/")[0]
        system.makedirs(folder, exist_ok=True)
        unfinished = f"{folder}/{_UNFINISHED}{os.urandom(8).hex()}"
        try:
            with system.open(unfinished, "wb") as file:
                file.write(payload)
                file.flush()
                if self._scheme == "file":
                    os.fsync(file.fileno())
            if self._scheme == "file":
                os.replace(unfinished, path)  # noqa: PTH105 - fsspec's own move copies and deletes
            else:
                system.mv(unfinished, path)
        except BaseException:
            with contextlib.suppress(Exception):
                system.rm_file(unfinished)
            raise

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Read the payload (see PayloadStore); a missing root is not a missing payload."""
        path = self._path(name_of(reference, str(self), self))
        with self._told("give"):
            system = self._system.get()
            try:
                size = system.info(path).get("size")
                if size is not None:
                    check_size(reference, size)
                # No range of an empty object can be read: Google's buckets refuse each.
                found: bytes = (
                    b"" if size == 0 else system.cat_file(path, start=0, end=reference.size + 1)
                )
            except FileNotFoundError as error:
                if not self._has_root(system):
                    raise
                msg = f"the payload at {reference} is gone"
                raise PayloadGone(msg) from error
        return verified(reference, found)

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of this store (see PayloadStore)."""
        return is_below(uri, str(self))

    def delete(self, uri: str, /) -> None:
        """Delete it (see PayloadStore); a missing root is not a deleted payload."""
        path = self._path(name_in(uri, str(self), self))
        with self._told("delete"):
            system = self._system.get()
            try:
                system.rm_file(path)
            except FileNotFoundError:
                if not self._has_root(system):
                    raise

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads below the root, once all are listed (see PayloadStore)."""
        with self._told("list"):
            system, root = self._system.get(), self._path("").strip("/")
            if not self._has_root(system):
                raise FileNotFoundError(2, "its bucket or folder is not there")
            found = system.find(self._path(""), detail=True)
        for path, told in found.items():
            if is_name(name := path.strip("/").removeprefix(f"{root}/")):
                yield FoundPayload(f"{self}{name}", int(told.get("size") or 0), _age_in(told))

    def is_there(self) -> bool:
        """True if its bucket or folder is there; raises PayloadStoreUnavailable."""
        with self._told("give"):
            return self._has_root(self._system.get())

    def _has_root(self, system: Any) -> bool:
        """True if the bucket, or the folder, is there."""
        if self._scheme == "memory":
            return True
        root = self._root.partition("/")[0] if self._is_objects else f"/{self._root}"
        return bool(system.exists(root))

    def close(self) -> None:
        """Forget the file system; the next payload opens another."""
        self._system.forget()

    def _path(self, name: str) -> str:
        path = f"{self._root}/{name}" if name else self._root
        return path if self._is_objects and self._scheme != "memory" else f"/{path}"

    @contextlib.contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (PayloadGone, PayloadCorrupt):
            raise
        except Exception as error:
            said = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            msg = f"the payload store {self} does not {verb} payloads: {said}"
            raise PayloadStoreUnavailable(msg) from error
