"""BrakeLight: how the brake stands, for the top of every page; no page waits long for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.analysis.ledger.emergency_stop import Brake, BrakeState
from angzarr.clock import Clock
from angzarr.errors import AngzarrError

#: How old it may be, and how long a ledger that was away is not asked again.
FRESH: Final = timedelta(seconds=2)
AWAY: Final = timedelta(seconds=15)


@dataclass(slots=True)
class BrakeLight:
    """Remembers how the brake stood; one thread at a time asks again."""

    brake: Brake
    clock: Clock
    #: None: nobody has said it yet.
    _known: BrakeState | None = None
    _ask_at: datetime | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> BrakeState | None:
        """Return how it stands, or how it stood last where the ledger is away; None: unknown."""
        if self._is_fresh() or not self._asking.acquire(blocking=False):
            return self._known
        try:
            self.show(self.brake.state())
        except AngzarrError:  # the page itself says what is wrong, if it needs the ledger
            self._ask_at = self.clock.now() + AWAY
        finally:
            self._asking.release()
        return self._known

    def last(self) -> BrakeState | None:
        """Return how it stood when somebody looked, None: nobody has; asks nobody."""
        return self._known

    def show(self, state: BrakeState) -> None:
        """Take in how it stands now."""
        self._known, self._ask_at = state, self.clock.now() + FRESH

    def _is_fresh(self) -> bool:
        return self._ask_at is not None and self.clock.now() < self._ask_at
