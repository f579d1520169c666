"""Reads configurations through a cache: versions never change, what is current may.

A version that is not in the store is an error; another one never stands in.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final, NamedTuple

from angzarr.clock import Clock
from angzarr.configuration.version import (
    LONGEST_VERSION,
    ConfigurationSource,
    is_name,
    no_version,
    version_missing,
)

#: Bytes of values that a process keeps, by default.
CACHED: Final = 64 * 1024 * 1024
#: How long a process takes a version for the current one, by default.
CURRENT_FOR: Final = timedelta(seconds=5)
#: Bytes that an entry takes beside its text.
_OVERHEAD: Final = 300


class PinnedVersion(NamedTuple):
    """A version of a configuration and its value, as canonical JSON."""

    id: str
    version: str
    text: str

    @property
    def value(self) -> Any:
        """The JSON value, made anew each time: its reader may change it."""
        return json.loads(self.text)


class VersionCache:
    """The values that were read last, up to *most* bytes. Safe to use from many threads."""

    def __init__(self, most: int = CACHED) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[tuple[str, str], PinnedVersion] = OrderedDict()
        self._lock = Lock()

    def get(self, id: str, version: str) -> PinnedVersion | None:
        """The version if it is kept; it stays longest now."""
        key = (id, version)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, read: PinnedVersion) -> None:
        """Keep *read*, and let go what was not read for longest."""
        key = (read.id, read.version)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = read
                self._size += len(read.text) + _OVERHEAD
            while self._size > self._most:
                _, gone = self._kept.popitem(last=False)
                self._size -= len(gone.text) + _OVERHEAD

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size


class ConfigurationReader:
    """Reads for one process. Safe to use from many threads. Raises StoreUnavailable."""

    def __init__(
        self,
        source: ConfigurationSource,
        clock: Clock,
        *,
        cached: int = CACHED,
        current_for: timedelta = CURRENT_FOR,
    ) -> None:
        self._source = source
        self._clock = clock
        self._cache = VersionCache(cached)
        self._current_for = current_for
        #: By id: the current version, and when it was read.
        self._current: dict[str, tuple[str, datetime]] = {}

    def pinned(self, id: str, version: str) -> PinnedVersion:
        """The version of that name; asks the store once. Raises ConfigurationVersionMissing.

        Both names may come from a queue.
        """
        if (kept := self._cache.get(id, version)) is not None:
            return kept
        names = is_name(id) and is_name(version, LONGEST_VERSION)
        found = self._source.get(id, version) if names else None
        if found is None:
            raise version_missing(id, version)
        return self._keep(PinnedVersion(id, version, found.body.value))

    def current(self, id: str) -> PinnedVersion:
        """The version that is current, or was a few seconds ago.

        Raises ConfigurationVersionMissing where there is none.
        """
        seen = self._current.get(id)
        if seen is not None:
            version, at = seen
            if timedelta(0) <= self._clock.now() - at < self._current_for:
                return self.pinned(id, version)
        asked_at = self._clock.now()
        found = self._source.current(id) if is_name(id) else None
        if found is None:
            raise no_version(id)
        self._current[id] = (found.version, asked_at)
        return self._keep(PinnedVersion(id, found.version, found.body.value))

    def forget_current(self) -> None:
        """Ask anew what is current: this process has changed it."""
        self._current.clear()

    def close(self) -> None:
        """Let connections go; it can still be used."""
        self._source.close()

    def _keep(self, read: PinnedVersion) -> PinnedVersion:
        self._cache.keep(read)
        return read
