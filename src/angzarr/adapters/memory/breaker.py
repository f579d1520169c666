"""Breakers of one process: each worker process finds out for itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from threading import Lock

from angzarr.resilience.breaker import Barred, BreakerSettings, State, admit, isolated, record

_DEFAULTS = BreakerSettings()
_NEW = State()


class InProcessBreakers:
    """Fulfils `Breakers`, safe to use from many threads; `settings` by name, else *default*."""

    def __init__(
        self,
        settings: Mapping[str, BreakerSettings] | None = None,
        default: BreakerSettings = _DEFAULTS,
    ) -> None:
        self._settings = dict(settings or {})
        self._default = default
        self._states: dict[str, State] = {}
        self._lock = Lock()

    def admit(self, name: str, token: str, now: datetime, /) -> Barred | None:
        """Ask to make a call; None: make it."""
        with self._lock:
            state = self._states.get(name, _NEW)
            self._states[name], refused = admit(state, token, now, self._of(name))
        return refused

    def record(self, name: str, token: str, *, ok: bool, now: datetime) -> None:
        """Say how the admitted call ended."""
        with self._lock:
            state = self._states.get(name, _NEW)
            self._states[name] = record(state, token, now, self._of(name), ok=ok)

    def isolate(self, name: str, /) -> None:
        """Hold the breaker open until it is reset."""
        with self._lock:
            self._states[name] = isolated()

    def reset(self, name: str, /) -> None:
        """Close the breaker and forget what it saw."""
        with self._lock:
            self._states[name] = State()

    def state(self, name: str) -> State:
        """Return the breaker's state as it is now."""
        with self._lock:
            return self._states.get(name, State())

    def _of(self, name: str) -> BreakerSettings:
        return self._settings.get(name, self._default)
