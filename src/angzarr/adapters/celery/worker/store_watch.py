"""StoreWatch: what a worker was refused for at its start, looked for while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from angzarr.errors import text_of
from angzarr.runtime.log_throttle import Seldom

_log = logging.getLogger("angzarr.worker")

#: An operator may change a server's settings at any time.
LOOKED_EVERY: Final = timedelta(minutes=1)


class StoreWatch:
    """Turns: *ask* returns why a server may lose messages, as it is set now; empty: it does not."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._seldom = Seldom()
        #: What was found last.
        self.says = ""

    def turn(self) -> timedelta:
        """Ask once. A server that is away is asked again; it says nothing against itself."""
        try:
            says = self._ask()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it
            if self._seldom.now():
                _log.warning("store_not_looked_at: %s", text_of(error))
            return LOOKED_EVERY
        if says:
            _log.critical("store_loses_messages: %s", says)
        elif self.says:
            _log.warning("store_keeps_messages: again")
        self.says = says
        return LOOKED_EVERY

    def leave(self) -> None:
        """End."""
