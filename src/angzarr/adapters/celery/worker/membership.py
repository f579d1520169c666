"""Membership: keeps a worker on the register of its fleet, and never hurts it (decisions 23).

The register is for those who judge failures; no message hangs on it. What goes wrong there is said
and tried again, and the worker goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from angzarr.fleet import SAID_AGAIN, Fleet, Member
from angzarr.runtime.log_throttle import Seldom

_log = logging.getLogger("angzarr.worker")

#: Seconds that a register which failed is left alone: at first, and at most. Each try may take as
#: long as the store's time-out, on the thread that renews the owner lease.
LEFT_ALONE: Final = (2.0, 30.0)


class Membership:
    """One worker on the register: says what it is at first, when that changed, and once a minute.

    *look* tells what it is at this moment. It ends with the owner lease, by which members count.
    """

    def __init__(
        self,
        fleet: Fleet,
        look: Callable[[], Member],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._look = look
        self._monotonic = monotonic
        self._seldom = Seldom(monotonic=monotonic)
        #: What was said last.
        self._said: Member | None = None
        self._say_again_at = float("-inf")
        self._leave_alone = 0.0
        self._again_at = float("-inf")

    def renew(self) -> None:
        """Say what there is to say, unless the register failed just now. Never raises."""
        if self._monotonic() < self._again_at:
            return
        try:
            self._say()
        except Exception as error:  # noqa: BLE001 - a fleet that is not told must not cost a worker
            self._fail(error)
        else:
            self._leave_alone = 0.0

    def _say(self) -> None:
        member = self._look()
        if member != self._said or self._monotonic() >= self._say_again_at:
            self._fleet.register(member)
            self._said = member
            self._say_again_at = self._monotonic() + SAID_AGAIN.total_seconds()

    def _fail(self, error: Exception) -> None:
        least, most = LEFT_ALONE
        self._leave_alone = min(max(2 * self._leave_alone, least), most)
        self._again_at = self._monotonic() + self._leave_alone
        if self._seldom.now():
            _log.warning("fleet_not_told: %s", error)
