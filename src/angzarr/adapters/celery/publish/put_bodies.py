"""PutBodies: which bodies this process put into the payload store of late, and their messages.

A body for several handlers is put once. A body that is sealed again has other bytes, and so another
name there. So a message that is sent again, since its broker was away, names the body that was put
for it before: else each try would leave a body that no message names, and that is held for ever.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from angzarr.payloads.claim_check import ClaimCheck
from angzarr.payloads.holders import BodyRegistration, PayloadHold

#: Seconds in which one body for several handlers is put once.
SAME: Final = 5.0
#: Seconds for which a message names a sealed body again that nothing is registered to hold: what
#: deletes old bodies there counts from when they were put.
_SEALED_AGAIN: Final = 3600.0
#: Messages that may wait at once for their broker, each with its sealed body.
_MOST: Final = 500


@dataclass(frozen=True, slots=True)
class PutBody:
    """A body that was put, by what names it, and the message that stands for it."""

    name: str
    at: float
    check: ClaimCheck
    text: str
    body: bytes


@dataclass(slots=True)
class PutBodies:
    """What was put of late. Safe to use from many threads."""

    monotonic: Callable[[], float]
    #: None: no body is registered, and all are kept.
    registration: BodyRegistration | None
    #: The one that was asked for last is the last.
    _kept: OrderedDict[str, PutBody] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def keep(self, put: PutBody) -> None:
        """Note *put*, and forget what was not asked for for longest."""
        with self._lock:
            self._kept[put.name] = put
            self._kept.move_to_end(put.name)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)

    def find(
        self, name: str, hold_of: Callable[[ClaimCheck], PayloadHold | None]
    ) -> PutBody | None:
        """What was put of *name*, once its message holds it by *hold_of*; None: put it."""
        with self._lock:
            if (put := self._kept.get(name)) is None:
                return None
            self._kept.move_to_end(name)
        age, is_sealed = self.monotonic() - put.at, bool(put.check.key)
        hold = hold_of(put.check)
        if self.registration is None or hold is None:  # it is kept for ever
            return put if age <= (_SEALED_AGAIN if is_sealed else SAME) else None
        # A plain body is put anew: it has the same name, and is young again.
        return put if (is_sealed or age <= SAME) and self.registration.joins(hold) else None
