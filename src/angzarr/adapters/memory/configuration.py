"""Configurations and pins of one process, for tests and for a set-up that is a single process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from threading import Lock

from angzarr.clock import Clock, SystemClock
from angzarr.configuration.pins import PIN_LIFE
from angzarr.configuration.version import (
    ConfigurationAct,
    ConfigurationChoice,
    ConfigurationDraft,
    ConfigurationVersion,
    PutVersion,
    VersionInfo,
    next_version,
    same_version,
    unknown_version,
)


class MemoryConfigurationStore:
    """Fulfils `ConfigurationStore`, safe to use from many threads."""

    def __init__(self) -> None:
        #: By id, then by name, in the order in which they were put.
        self._versions: dict[str, dict[str, ConfigurationVersion]] = {}
        self._choices: dict[str, list[ConfigurationChoice]] = {}
        self._lock = Lock()

    def get(self, id: str, version: str, /) -> ConfigurationVersion | None:
        """The version of that name."""
        return self._versions.get(id, {}).get(version)

    def current(self, id: str, /) -> ConfigurationVersion | None:
        """The version that was put or chosen last."""
        chosen = self._choices.get(id)
        return self.get(id, chosen[-1].version) if chosen else None

    def put(self, draft: ConfigurationDraft, /) -> PutVersion:
        """Keep *draft*, and make it current."""
        with self._lock:
            known = self._versions.setdefault(draft.id, {})
            last = next(reversed(known.values()), None)
            same = same_version(draft, known.get(draft.version or ""), last)
            if same is not None:
                return PutVersion(same, fresh=False)
            number = len(known) + 1
            info = VersionInfo(
                id=draft.id,
                version=draft.version or next_version(number, known.__contains__),
                number=number,
                act=draft.act,
                has_schema=draft.body.schema is not None,
            )
            made = ConfigurationVersion(info=info, body=draft.body)
            known[info.version] = made
            self._choose(draft.id, info.version, draft.act, put=True)
            return PutVersion(made, fresh=True)

    def choose(self, id: str, version: str, act: ConfigurationAct, /) -> bool:
        """Make *version* the current one."""
        with self._lock:
            if self.get(id, version) is None:
                raise unknown_version(id, version)
            if self._choices[id][-1].version == version:
                return False
            self._choose(id, version, act, put=False)
            return True

    def versions(self, id: str, /) -> list[VersionInfo]:
        """All versions of *id*."""
        return [one.info for one in list(self._versions.get(id, {}).values())]

    def choices(self, id: str, /) -> list[ConfigurationChoice]:
        """All versions that became the current one."""
        return list(self._choices.get(id, ()))

    def ids(self) -> list[str]:
        """All configurations."""
        return sorted(name for name, known in list(self._versions.items()) if known)

    def close(self) -> None:
        """Do nothing."""

    def _choose(self, id: str, version: str, act: ConfigurationAct, *, put: bool) -> None:
        choice = ConfigurationChoice(version=version, act=act, put=put)
        self._choices.setdefault(id, []).append(choice)


class MemoryPinStore:
    """Fulfils `PinStore`, safe to use from many threads; pins end *life* after the last keep."""

    def __init__(self, clock: Clock | None = None, *, life: timedelta = PIN_LIFE) -> None:
        self._clock = clock or SystemClock()
        self._life = life
        self._kept: dict[str, tuple[datetime, dict[str, str]]] = {}
        self._lock = Lock()

    def keep(self, key: str, pins: Mapping[str, str], /) -> Mapping[str, str]:
        """Keep what *key* has no pin for."""
        with self._lock:
            self._sweep()
            _, known = self._kept.pop(key, (None, {}))
            kept = {**pins, **known}
            if kept:  # last, so that what ends first stands first
                self._kept[key] = (self._clock.now() + self._life, kept)
            return dict(kept)

    def read(self, key: str, /) -> Mapping[str, str]:
        """All pins under *key*."""
        with self._lock:
            self._sweep()
            return dict(self._kept.get(key, (None, {}))[1])

    def _sweep(self) -> None:
        now = self._clock.now()
        for key, (until, _) in list(self._kept.items()):
            if until > now:
                return
            del self._kept[key]
