"""Payloads on any file system that fsspec knows: Google's and Azure's buckets, SFTP, memory.

What answers is other people's code: every error of it counts as absence, and its text, which may
hold a token, is shown nowhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import fsspec

from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import (
    PayloadReference,
    StorageKind,
    check_place,
    check_size,
    sha256_of,
    verified,
)
from angzarr.runtime.processes import OncePerProcess

#: What kind of store a scheme is, for other languages.
_KINDS: Final = {"gs": StorageKind.GCS, "gcs": StorageKind.GCS, "file": StorageKind.FILESYSTEM}
#: File systems on which an object is there whole or not at all, and that have no folders.
_OBJECTS: Final = frozenset(
    {"gs", "gcs", "abfs", "abfss", "adl", "az", "oss", "ossfs", "memory", "s3"}
)
#: What a file's name begins with until it is whole; a killed process may leave such a file.
_UNFINISHED: Final = ".unfinished-"


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

    def put(self, payload: bytes, /) -> PayloadReference:
        """Write *payload* (see PayloadStore)."""
        sha256 = sha256_of(payload)
        path = self._path(sha256)
        with self._told("take"):
            if self._is_objects:
                self._system.get().pipe_file(path, payload)
            else:
                self._write_whole(path, payload)
        return PayloadReference(
            kind=_KINDS.get(self._scheme, StorageKind.UNSPECIFIED),
            uri=self._uri(sha256),
            sha256=sha256,
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
        check_place(reference, self._uri(reference.sha256), self)
        path = self._path(reference.sha256)
        with self._told("give"):
            system = self._system.get()
            try:
                size = system.info(path).get("size")
                if size is not None:
                    check_size(reference, size)
                found: bytes = system.cat_file(path, start=0, end=reference.size + 1)
            except FileNotFoundError as error:
                if not self._has_root(system):
                    raise
                msg = f"the payload at {reference} is gone"
                raise PayloadGone(msg) from error
        return verified(reference, found)

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

    def _path(self, sha256: str) -> str:
        path = f"{self._root}/{sha256[:2]}/{sha256[2:]}"
        return path if self._is_objects and self._scheme != "memory" else f"/{path}"

    def _uri(self, sha256: str) -> str:
        return f"{self}{sha256[:2]}/{sha256[2:]}"

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
