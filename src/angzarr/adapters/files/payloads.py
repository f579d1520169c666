"""Payloads in a local folder: one file each, whole or not there, on disk before it counts.

Links in the folder are not followed, and what is not a file is not opened: others may write there.
The folder itself may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from angzarr.adapters.files import whole_files
from angzarr.clock import Clock, SystemClock
from angzarr.errors import (
    PayloadCorrupt,
    PayloadGone,
    PayloadStoreUnavailable,
)
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

#: O_NONBLOCK: a foreign named pipe must not stop a worker.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: What the system says of a link, of what is no folder, and of a socket.
_FOREIGN: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})
_NOT_A_FILE: Final = "links are not followed there, and only files are opened"


class _NotAFile(OSError):
    """A link, a folder or a device stands where a payload should lie."""

    def __init__(self) -> None:
        super().__init__(errno.ELOOP, _NOT_A_FILE)


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
            whole_files.make_folder(self._folder)
            _make_shard(path.parent)
            with whole_files.opened(self._folder) as root, _shard(root, chosen) as folder:
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
        name = name_of(reference, self._root, self)
        with self._told("read"):
            try:
                with whole_files.opened(self._folder) as root, _opened(root, name) as file:
                    check_size(reference, os.fstat(file).st_size)
                    found = _read(file, reference.size + 1)
            except _NotAFile:
                msg = f"the payload at {reference} is corrupt: {_NOT_A_FILE}"
                raise PayloadCorrupt(msg) from None
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
        name = name_in(uri, self._root, self)
        with self._told("written"):
            try:
                with whole_files.opened(self._folder) as root, _shard(root, name) as folder:
                    os.unlink(name.rpartition("/")[2], dir_fd=folder)
            except (_NotAFile, IsADirectoryError):
                pass  # what stands there is no payload
            except FileNotFoundError:
                self._folder.stat()

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads in the folder (see PayloadStore)."""
        with self._told("read"):
            shards = sorted(whole_files.names_in(self._folder))
        for shard in shards:
            with self._told("read"):
                found = self._in_shard(shard)
            yield from found

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _in_shard(self, shard: str) -> list[FoundPayload]:
        """The payloads in *shard*, which may be gone, or no folder at all."""
        try:
            with whole_files.opened(self._folder) as root, _shard(root, f"{shard}/") as folder:
                files = os.listdir(folder)  # noqa: PTH208 - of a folder that is open
                names = [name for name in files if is_name(f"{shard}/{name}")]
                told = [(name, _told_of(folder, name)) for name in names]
        except (_NotAFile, FileNotFoundError):
            return []
        return [
            FoundPayload(
                f"{self._root}{shard}/{name}",
                one.st_size,
                datetime.fromtimestamp(one.st_mtime, UTC),
            )
            for name, one in told
            if one is not None and stat.S_ISREG(one.st_mode)
        ]

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = error.strerror or type(error).__name__
            msg = f"the payload folder {self._folder} cannot be {verb}: {said}"
            raise PayloadStoreUnavailable(msg) from error


def _make_shard(path: Path) -> None:
    """Make the folder *path*; raises OSError, which says what to do, where it is something else."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise OSError(
            errno.ENOTDIR, f"{path} is no folder; remove it, links are not followed there"
        )
    whole_files.make_folder(path)


@contextmanager
def _shard(root: int, name: str) -> Iterator[int]:
    """Open the folder of the payload called *name* below the folder *root*; no link is followed."""
    shard = name.partition("/")[0]
    try:
        folder = os.open(shard, _READ | os.O_DIRECTORY, dir_fd=root)
    except OSError as error:
        if error.errno in _FOREIGN:
            raise _NotAFile from None
        raise
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _opened(root: int, name: str) -> Iterator[int]:
    """Open the payload called *name* below the folder *root*, if it is a file."""
    with _shard(root, name) as folder:
        try:
            file = os.open(name.rpartition("/")[2], _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in _FOREIGN:
                raise _NotAFile from None
            raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _NotAFile
        yield file
    finally:
        os.close(file)


def _read(file: int, most: int) -> bytes:
    """What is in *file*, up to *most* bytes."""
    with open(file, "rb", closefd=False) as opened:
        return opened.read(most)


def _told_of(folder: int, name: str) -> os.stat_result | None:
    """What the disk tells of *name* in *folder*; None: it is gone by now."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
