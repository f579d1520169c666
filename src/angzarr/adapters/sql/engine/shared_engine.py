"""One engine for all that a process keeps in one database, so that it has one pool there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Engine

from angzarr.adapters.sql.engine.engine import build_engine, parsed_url


class Lent:
    """An engine that others use too. To be closed by whoever borrowed it; safe to close twice."""

    def __init__(self, engine: Engine, give_back: Callable[[], None]) -> None:
        self.engine = engine
        self._give_back: Callable[[], None] | None = give_back

    def close(self) -> None:
        """Give it back; the last who does so closes the pooled connections."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class SharedEngines:
    """Lends one engine for each address. Safe to use from threads.

    A child goes on with the engines that it inherited, with connections of its own
    (`fork.survive_forks`).
    """

    def __init__(self) -> None:
        self._engines: dict[URL, Engine] = {}
        self._users: dict[URL, int] = {}
        self._lock = threading.Lock()
        # Another thread may hold the lock while this one forks; nobody would ever let it go.
        os.register_at_fork(after_in_child=self._renew_lock)

    def borrow(self, url: str) -> Lent:
        """Lend the engine for *url*, made now if nobody has it; raises ConfigurationError."""
        place = _place(url)
        with self._lock:
            if place not in self._engines:
                self._engines[place] = build_engine(url)
            self._users[place] = self._users.get(place, 0) + 1
            return Lent(self._engines[place], lambda: self._return(place))

    def _return(self, place: URL) -> None:
        with self._lock:
            self._users[place] -= 1
            if self._users[place]:
                return
            del self._users[place]
            engine = self._engines.pop(place)
        engine.dispose()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


#: Those of this process.
ENGINES: Final = SharedEngines()


def _place(url: str) -> URL:
    """Return where *url* leads: a file that is named from here is another one elsewhere."""
    parsed = parsed_url(url)
    if parsed.get_backend_name() != "sqlite":
        return parsed
    return parsed.set(database=str(Path(parsed.database or "").absolute()))
